"""How dates read in Portuguese: with seconds, which is what an operator compares."""

DATE_FORMAT = r"j \d\e E \d\e Y"
DATETIME_FORMAT = "d/m/Y H:i:s"
