"""Stands in for the product's management commands."""

import json
import sys
from pathlib import Path

import standin

COMMAND = sys.argv[1]

if COMMAND == "migrate":
    sys.stdout.write("  Applying accounts.0001_initial... OK\n")
elif COMMAND == "demo":
    account = {"email": "demo@example.com", "password": "demo", "api_key": "key-1", "instance": "demo"}
    message = {"to": "5511999990000", "template": "welcome", "variables": {"name": "Ana"}}
    Path(sys.argv[sys.argv.index("--state") + 1]).write_text(json.dumps(account | message))
elif COMMAND in {"worker", "consume"}:
    standin.run_as(COMMAND)
