"""How the administration looks, and where its sidebar leads."""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _


def _link(title: Any, icon: str, name: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse_lazy(f"admin:{name}_changelist")}


ADMINISTRATION = {
    "SITE_TITLE": "Pilot",
    "SITE_HEADER": "Pilot",
    "SITE_SUBHEADER": _("Administration"),
    "SITE_ICON": lambda request: static("pilot.svg"),
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("pilot.svg")}],
    "SHOW_LANGUAGES": True,
    "COLORS": {
        "primary": {
            "50": "#eefaf5",
            "100": "#d6f3e7",
            "200": "#aee6d1",
            "300": "#7ad3b5",
            "400": "#45b894",
            "500": "#1f9c79",
            "600": "#0b6b57",
            "700": "#0a5a4a",
            "800": "#0a483c",
            "900": "#093b32",
            "950": "#04211c",
        }
    },
    "SIDEBAR": {
        "show_search": True,
        "show_all_applications": False,
        "navigation": [
            {
                "title": _("Messages"),
                "items": [
                    _link(_("Messages"), "chat", "messaging_message"),
                    _link(_("Received"), "inbox", "messaging_receivedmessage"),
                    _link(_("Templates"), "article", "messaging_template"),
                    _link(_("Contacts"), "contacts", "messaging_contact"),
                    _link(_("Opt-ins"), "how_to_reg", "messaging_optin"),
                    _link(_("Unknown outcomes"), "help", "messaging_unknownpolicy"),
                ],
            },
            {
                "title": _("Instances"),
                "items": [
                    _link(_("Instances"), "smartphone", "instances_instance"),
                    _link(_("Servers"), "dns", "instances_evolutionserver"),
                    _link(_("Meta apps"), "apps", "instances_metaapp"),
                    _link(_("Templates of Meta"), "article", "instances_metatemplate"),
                    _link(_("Outages"), "power_off", "instances_outage"),
                    _link(_("Connection events"), "history", "instances_instanceevent"),
                    _link(_("Inbound calls"), "webhook", "webhooks_inboundcall"),
                ],
            },
            {
                "title": _("Customers"),
                "items": [
                    _link(_("Tenants"), "storefront", "accounts_tenant"),
                    _link(_("Projects"), "apps", "accounts_project"),
                    _link(_("Members"), "badge", "accounts_membership"),
                    _link(_("Users"), "person", "accounts_user"),
                    _link(_("API keys"), "key", "accounts_apikey"),
                    _link(_("Webhook endpoints"), "outbound", "webhooks_webhookendpoint"),
                    _link(_("Webhook deliveries"), "outbox", "webhooks_webhookdelivery"),
                    _link(_("Usage"), "data_usage", "billing_usage"),
                    _link(_("Audit log"), "policy", "accounts_auditentry"),
                ],
            },
            {
                "title": _("Operation"),
                "collapsible": True,
                "items": [
                    {
                        "title": _("Queues"),
                        "icon": "format_list_numbered",
                        "link": reverse_lazy("ops:queues"),
                    },
                    _link(_("Alerts"), "notifications", "pilot_alert"),
                    _link(_("Alert deliveries"), "outgoing_mail", "pilot_alertdelivery"),
                    _link(_("Heartbeats"), "monitor_heart", "pilot_heartbeat"),
                    _link(_("Maintenance"), "cleaning_services", "pilot_maintenancerun"),
                    _link(_("Leases"), "lock_clock", "pilot_lease"),
                    _link(_("Runs of beat"), "timer", "pilot_beatrun"),
                    _link(_("Stream readers"), "stream", "pilot_streamplace"),
                    _link(_("Message events"), "timeline", "messaging_messageevent"),
                    _link(_("Events"), "campaign", "accounts_event"),
                    _link(_("Webhook events"), "podcasts", "webhooks_webhookevent"),
                    _link(_("Webhook replays"), "replay", "webhooks_webhookreplay"),
                    _link(_("Parked receipts"), "local_parking", "messaging_parkedreceipt"),
                    _link(_("Idempotency keys"), "fingerprint", "messaging_idempotencykey"),
                    _link(_("Labels"), "label", "messaging_messagelabel"),
                    _link(_("Lanes"), "speed", "instances_lane"),
                    _link(_("Signs of life"), "ecg_heart", "instances_vitals"),
                    _link(_("Circuit breakers"), "electric_bolt", "instances_breaker"),
                    _link(_("Hours"), "bar_chart", "instances_instancehour"),
                    _link(_("Purges"), "cleaning_services", "messaging_purge"),
                    _link(_("Tallies"), "pin", "pilot_tally"),
                    _link(_("Failed sign-ins"), "lock", "axes_accessattempt"),
                    _link(_("Second factors"), "phonelink_lock", "mfa_authenticator"),
                ],
            },
        ],
    },
}
