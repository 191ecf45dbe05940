"""What Evolution 2.3.7 accepts in each request body. Unlisted fields are ignored, never refused."""

from __future__ import annotations

from sandbox.evolution.validation import Schema

EVENTS = (
    "APPLICATION_STARTUP", "QRCODE_UPDATED", "MESSAGES_SET", "MESSAGES_UPSERT", "MESSAGES_EDITED",
    "MESSAGES_UPDATE", "MESSAGES_DELETE", "SEND_MESSAGE", "SEND_MESSAGE_UPDATE", "CONTACTS_SET",
    "CONTACTS_UPSERT", "CONTACTS_UPDATE", "PRESENCE_UPDATE", "CHATS_SET", "CHATS_UPSERT", "CHATS_UPDATE",
    "CHATS_DELETE", "GROUPS_UPSERT", "GROUP_UPDATE", "GROUP_PARTICIPANTS_UPDATE", "CONNECTION_UPDATE",
    "LABELS_EDIT", "LABELS_ASSOCIATION", "CALL", "TYPEBOT_START", "TYPEBOT_CHANGE_STATUS",
    "REMOVE_INSTANCE", "LOGOUT_INSTANCE", "INSTANCE_CREATE", "INSTANCE_DELETE", "STATUS_INSTANCE",
)  # fmt: skip
STATUSES = ["ERROR", "PENDING", "SERVER_ACK", "DELIVERY_ACK", "READ", "PLAYED"]
PRESENCES = ["unavailable", "available", "composing", "recording", "paused"]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
OBJECT: Schema = {"type": "object"}
NUMBER: Schema = {"type": "string", "description": "Invalid format"}
MENTIONED: Schema = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {
        "type": "string",
        "pattern": r"^\d+",
        "description": '"mentioned" must be an array of numeric strings',
    },
}
SEND_OPTIONS: dict[str, Schema] = {
    "delay": {"type": "integer", "description": "Enter a value in milliseconds"},
    "quoted": OBJECT,
    "mentionsEveryOne": BOOLEAN,
    "mentioned": MENTIONED,
}


def _body(properties: dict[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _strings(*names: str) -> dict[str, Schema]:
    return dict.fromkeys(names, STRING)


BUTTON = _body(
    {
        "type": {"type": "string", "enum": ["reply", "copy", "url", "call", "pix"]},
        **_strings("displayText", "id", "copyCode", "url", "phoneNumber", "currency", "name", "key"),
        "keyType": {"type": "string", "enum": ["phone", "email", "cpf", "cnpj", "random"]},
    },
    "type",
)
WEBHOOK_FIELDS: dict[str, Schema] = {
    "enabled": BOOLEAN,
    "url": STRING,
    "headers": OBJECT,
    "byEvents": BOOLEAN,
    "base64": BOOLEAN,
    "events": {"type": "array", "minItems": 0, "items": {"type": "string", "enum": list(EVENTS)}},
}

# op -> schema; an operation without one takes no body.
SCHEMAS: dict[str, Schema] = {
    "instance/create": _body(
        {
            "qrcode": BOOLEAN,
            "number": {"type": "string", "pattern": r"^\d+[\.@\w-]+"},
            **_strings("token", "businessId", "msgCall", "wavoipToken"),
            "webhook": _body(WEBHOOK_FIELDS),
            **_strings("proxyHost", "proxyPort", "proxyProtocol", "proxyUsername", "proxyPassword"),
        }
    ),
    "instance/setPresence": _body({"presence": {"type": "string", "enum": PRESENCES}}, "presence"),
    "message/sendText": _body(
        {"number": NUMBER, "text": STRING, "linkPreview": BOOLEAN, **SEND_OPTIONS}, "number", "text"
    ),
    "message/sendButtons": _body(
        {
            "number": NUMBER,
            **_strings("thumbnailUrl", "title", "description", "footer"),
            "buttons": {"type": "array", "items": BUTTON},
            **SEND_OPTIONS,
        },
        "number",
    ),
    "message/sendMedia": _body(
        {
            "number": NUMBER,
            "mediatype": {"type": "string", "enum": ["image", "document", "video", "audio"]},
            **_strings("mimetype", "media", "fileName", "caption"),
            **SEND_OPTIONS,
        },
        "number",
        "mediatype",
    ),
    "message/sendTemplate": _body(
        {
            "number": NUMBER,
            **_strings("name", "language", "webhookUrl"),
            "components": {"type": "array"},
            **SEND_OPTIONS,
        },
        "name",
        "language",
    ),
    "chat/sendPresence": _body(
        {"number": NUMBER, "delay": {"type": "number"}, "presence": {"type": "string", "enum": PRESENCES}},
        "number",
        "presence",
        "delay",
    ),
    "chat/findMessages": _body({"where": OBJECT, "page": INTEGER, "offset": INTEGER}),
    "chat/findStatusMessage": _body(
        {
            "where": _body(
                {
                    **_strings("id", "remoteJid", "participant"),
                    "fromMe": BOOLEAN,
                    "status": {"type": "string", "enum": STATUSES},
                }
            ),
            "page": INTEGER,
            "offset": INTEGER,
        }
    ),
    "chat/whatsappNumbers": _body(
        {
            "numbers": {
                "type": "array",
                "minItems": 1,
                "uniqueItems": True,
                "items": {"type": "string", "description": '"numbers" must be an array of numeric strings'},
            }
        }
    ),
    "webhook/set": _body({"webhook": _body(WEBHOOK_FIELDS, "enabled", "url")}, "webhook"),
}
