"""Evolution API 2.3.7, as recorded from a real server (tests/golden/evolution)."""
