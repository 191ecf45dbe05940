"""How dates read in English: the day first, and with seconds, which is what an operator compares."""

DATE_FORMAT = "j F Y"
DATETIME_FORMAT = "j M Y H:i:s"
