"""Stands in for `python -m sandbox`."""

import standin

standin.run_as("sandbox")
