"""Graph's error envelope, and what each code means to the emulator."""

from __future__ import annotations

from typing import Any

GATEWAY_PAGE = (
    "<html><head><title>Error</title></head><body><h1>Sorry, something went wrong.</h1></body></html>"
)

# code -> (HTTP status, title). Meta changes statuses and advises to go by the code.
CATALOGUE: dict[int, tuple[int, str]] = {
    0: (401, "AuthException"),
    1: (500, "API Unknown"),
    2: (503, "API Service"),
    3: (500, "API Method"),
    4: (400, "API Too Many Calls"),
    10: (403, "Permission Denied"),
    33: (400, "Parameter value is not valid"),
    100: (400, "Invalid parameter"),
    190: (401, "Access token has expired"),
    200: (403, "API Permission"),
    368: (403, "Temporarily blocked for policies violations"),
    613: (400, "Calls to this api have exceeded the rate limit."),
    80007: (400, "Rate limit issues"),
    130429: (429, "Rate limit hit"),
    130472: (400, "User's number is part of an experiment"),
    130497: (403, "Business account is restricted from messaging users in this country."),
    131000: (500, "Something went wrong"),
    131005: (403, "Access denied"),
    131008: (400, "Required parameter is missing"),
    131009: (400, "Parameter value is not valid"),
    131016: (500, "Service unavailable"),
    131021: (400, "Recipient cannot be sender"),
    131026: (400, "Message undeliverable"),
    131030: (400, "Recipient phone number not in allowed list"),
    131031: (403, "Account has been locked"),
    131037: (400, "Display name approval needed"),
    131042: (400, "Business eligibility payment issue"),
    131045: (500, "Incorrect certificate"),
    131047: (400, "Re-engagement message"),
    131048: (400, "Spam rate limit hit"),
    131049: (400, "This message was not delivered to maintain healthy ecosystem engagement."),
    131050: (400, "User has stopped receiving marketing messages"),
    131051: (400, "Unsupported message type"),
    131052: (400, "Media download error"),
    131053: (400, "Media upload error"),
    131056: (400, "(Business Account, Consumer Account) pair rate limit hit"),
    131057: (500, "Account in maintenance mode"),
    131062: (400, "BSUID recipients are not supported"),
    132000: (400, "Number of parameters does not match the expected number of params"),
    132001: (404, "Template name does not exist in the translation"),
    132005: (400, "Translated text too long"),
    132007: (400, "Template format character policy violated"),
    132012: (400, "Parameter format does not match format in the created template"),
    132015: (400, "Template is paused"),
    132016: (400, "Template is disabled"),
    133010: (400, "Account not registered"),
    135000: (400, "Generic user error"),
}
DETAILS: dict[int, str] = {
    131047: "Message failed to send because more than 24 hours have passed since the customer last replied to this"
    " number.",
    131026: "Unable to deliver the message. Reasons can include that the number is not registered on WhatsApp.",
    131049: "In order to maintain a healthy ecosystem engagement, the message failed to be delivered.",
    130472: "Failed to send message because this user's phone number is part of an experiment",
    131053: "Unsupported Audio mime type audio/opus.",
    131056: "Message failed to send because there were too many messages sent from this phone number to the same phone"
    " number in a short period of time.",
}


class GraphError(Exception):
    """An answer that is no success. `subcode` and `details` are left out where empty."""

    def __init__(
        self,
        code: int,
        details: str = "",
        *,
        subcode: int | None = None,
        status: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(code, details)
        self.code, self.subcode = code, subcode
        self.details = details or DETAILS.get(code, "")
        self.status = status or CATALOGUE.get(code, (400, ""))[0]
        self.retry_after = retry_after

    @property
    def title(self) -> str:
        return CATALOGUE.get(self.code, (400, "Unknown error"))[1]

    def body(self) -> dict[str, Any]:
        """The envelope of an HTTP answer."""
        error: dict[str, Any] = {
            "message": f"(#{self.code}) {self.title}",
            "type": "OAuthException",
            "code": self.code,
            "fbtrace_id": "AsandboxTraceIdAsandbox",
        }
        if self.subcode:
            error["error_subcode"] = self.subcode
        if self.details:
            error["error_data"] = {"messaging_product": "whatsapp", "details": self.details}
        return {"error": error}


def status_error(code: int, details: str = "") -> dict[str, Any]:
    """The same as an item of a webhook's `errors`."""
    error = GraphError(code, details)
    return {
        "code": code,
        "title": error.title,
        "message": error.title,
        "error_data": {"details": error.details or error.title},
        "href": "https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/",
    }


def unknown_object(id_: str) -> GraphError:
    """What Graph says of an id that does not exist or that the token may not see: 400, not 404."""
    details = f"Unsupported request. Object with ID '{id_}' does not exist, cannot be loaded due to missing permissions"
    return GraphError(100, details, subcode=33)
