"""An example of each of the main shapes of the API, by the name of its component. A test holds them to the schema."""

from typing import Any

TIME = "2026-11-29T12:00:00.000000Z"
BUTTONS = [
    {"kind": "reply", "label": "Sim", "value": "yes"},
    {"kind": "reply", "label": "Não", "value": "no"},
]
OPT_IN = {"granted_at": TIME, "revoked_at": None, "source": "checkout", "evidence": "Aceito receber avisos."}
KEY = {
    "prefix": "pilot_live_1a2b3c4d",
    "name": "ERP",
    "environment": "live",
    "scopes": ["messages:read", "messages:write"],
    "state": "active",
    "created_at": TIME,
    "expires_at": None,
    "last_used_at": TIME,
    "ends_at": None,
}

EXAMPLES: dict[str, dict[str, Any]] = {
    # what is sent
    "BatchRequest": {
        "messages": [
            {"to": "+5511999990000", "template": "pedido_enviado", "variables": {"nome": "Ana"}},
            {"to": "+5511988880000", "text": "Seu pedido chegou bem?", "buttons": BUTTONS},
        ]
    },
    "ContactName": {"name": "Ana Souza"},
    "Content": {"text": "Olá {{nome}}, seu pedido saiu.", "publish": True},
    "Grant": {"source": "checkout", "evidence": "Aceito receber avisos por WhatsApp."},
    "KeyRotation": {"overlap_seconds": 86_400},
    "NewInstance": {"name": "loja-centro"},
    "NewKey": {"name": "ERP", "scopes": ["messages:read", "messages:write"]},
    "NewTemplate": {
        "name": "pedido_enviado",
        "category": "utility",
        "text": "Olá {{nome}}, seu pedido saiu.",
        "publish": True,
    },
    "Numbers": {"numbers": ["(11) 99999-0000", "+5511988880000"]},
    "Pair": {"number": "+5511999990000"},
    "PatchedChangeEndpoint": {"description": "CRM", "enabled": True, "catch_up": False},
    "PreviewRequest": {"variables": {"nome": "Ana"}},
    "ReceivedCall": {
        "headers": {"webhook-id": "evt_1", "webhook-timestamp": "1796040000", "webhook-signature": "v1,…"},
        "body": '{"type":"message.delivered"}',
    },
    "Replay": {"since": "2026-11-29T00:00:00Z", "until": "2026-11-29T12:00:00Z", "everything": False},
    "Rotation": {"overlap_seconds": 86_400},
    "Test": {"type": "message.delivered"},
    # what is answered
    "Contact": {
        "number": "+5511999990000",
        "name": "Ana Souza",
        "recipient_id": "5511999990000@s.whatsapp.net",
        "created_at": TIME,
        "opt_in": OPT_IN,
    },
    "Error": {
        "error": {
            "code": "invalid",
            "message": "Some fields are not valid.",
            "request_id": "01a229e4-225d-7415-a446-deff233a3efe",
            "fields": {"text": ["This field may not be blank."]},
        }
    },
    "Instance": {
        "name": "loja-centro",
        "status": "open",
        "since": TIME,
        "paused": False,
        "number": "+5511999990000",
    },
    "IssuedKey": KEY | {"key": "pilot_live_1a2b3c4d_…"},
    "Key": KEY,
    "OptIn": OPT_IN,
    "Template": {
        "name": "pedido_enviado",
        "category": "utility",
        "status": "active",
        "current_version": {
            "number": 1,
            "content": {"text": "Olá {{nome}}, seu pedido saiu."},
            "variables": ["nome"],
            "created_at": TIME,
        },
        "created_at": TIME,
    },
    "Usage": {"month": "2026-11", "environment": "live", "accepted": 1042},
}
