"""Stands in for `python -m celery -A pilot beat`."""

import sys

import standin

standin.run_as(sys.argv[3])
