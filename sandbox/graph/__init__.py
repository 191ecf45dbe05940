"""An emulator of Meta's Graph API: the WhatsApp Cloud API and Instagram messaging."""
