"""One valid content of each kind, for the tests of everything that takes them."""

from __future__ import annotations

from typing import Any

LIST: dict[str, Any] = {
    "type": "list",
    "text": "Escolha um horário",
    "title": "Agenda",
    "footer": "Loja",
    "button": "Horários",
    "sections": [
        {"title": "Manhã", "rows": [{"id": "m9", "title": "9 h", "description": "com Ana"}]},
        {"title": "Tarde", "rows": [{"id": "t2", "title": "14 h"}]},
    ],
}
TEMPLATE: dict[str, Any] = {
    "type": "template",
    "name": "order_update",
    "language": "pt_BR",
    "components": [
        {"type": "header", "parameters": [{"type": "image", "image": {"id": "123"}}]},
        {"type": "body", "parameters": [{"type": "text", "text": "Ana"}]},
        {
            "type": "button",
            "sub_type": "url",
            "index": "0",
            "parameters": [{"type": "text", "text": "abc"}],
        },
    ],
}
CONTENTS: dict[str, dict[str, Any]] = {
    "text": {"text": "Olá"},
    "typed text": {"type": "text", "text": "Olá https://loja.example"},
    "reply buttons": {
        "text": "Chegou?",
        "title": "Pedido 1042",
        "footer": "Loja",
        "buttons": [
            {"kind": "reply", "label": "Sim", "value": "yes"},
            {"kind": "reply", "label": "Não", "value": "no"},
        ],
    },
    "link button": {
        "text": "Acompanhe",
        "buttons": [{"kind": "url", "label": "Ver pedido", "value": "https://loja.example/1042"}],
    },
    "mixed buttons": {
        "text": "Pague",
        "buttons": [
            {"kind": "copy", "label": "Copiar PIX", "value": "000201"},
            {"kind": "call", "label": "Ligar", "value": "+551130000000"},
        ],
    },
    "image": {"type": "image", "link": "https://loja.example/a.jpg", "caption": "Nova coleção"},
    "video": {"type": "video", "media_id": "123", "caption": "Veja"},
    "audio": {"type": "audio", "media_id": "123"},
    "voice": {"type": "audio", "media_id": "123", "voice": True},
    "document": {
        "type": "document",
        "link": "https://loja.example/nota.pdf",
        "caption": "Nota",
        "filename": "nota.pdf",
    },
    "sticker": {"type": "sticker", "media_id": "123"},
    "list": LIST,
    "flow": {
        "type": "flow",
        "text": "Agende",
        "button": "Começar",
        "flow_id": "999",
        "flow_token": "tok",
        "screen": "A",
        "data": {"loja": "centro"},
    },
    "location request": {"type": "location_request", "text": "Onde você está?"},
    "location": {
        "type": "location",
        "latitude": -23.55,
        "longitude": -46,
        "name": "Loja",
        "address": "Rua A, 1",
    },
    "contacts": {
        "type": "contacts",
        "contacts": [
            {
                "name": {"formatted_name": "Ana Souza", "first_name": "Ana"},
                "phones": [{"phone": "+5511999990000", "type": "CELL", "wa_id": "5511999990000"}],
                "emails": [{"email": "ana@loja.example"}],
                "urls": [{"url": "https://loja.example"}],
                "org": {"company": "Loja"},
            }
        ],
    },
    "reaction": {"type": "reaction", "message_id": "wamid.QUOTED==", "emoji": "👍"},
    "reaction taken off": {"type": "reaction", "message_id": "wamid.QUOTED==", "emoji": ""},
    "template": TEMPLATE,
    "named template": {
        "type": "template",
        "name": "order_update",
        "language": "en",
        "components": [
            {
                "type": "body",
                "parameters": [
                    {"type": "text", "parameter_name": "order", "text": "42"},
                    {
                        "type": "currency",
                        "parameter_name": "total",
                        "currency": {"fallback_value": "R$ 10", "code": "BRL", "amount_1000": 10000},
                    },
                ],
            },
            {
                "type": "button",
                "sub_type": "quick_reply",
                "index": "0",
                "parameters": [{"type": "payload", "payload": "YES"}],
            },
            {
                "type": "button",
                "sub_type": "flow",
                "index": "1",
                "parameters": [{"type": "action", "action": {"flow_token": "t", "flow_action_data": {}}}],
            },
        ],
    },
}
