"""A standalone HTTP emulator of the providers Pilot talks to, reached only over HTTP."""
