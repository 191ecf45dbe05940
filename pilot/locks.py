"""The numbers of this application's PostgreSQL advisory locks, in one place so that no two are the same."""

BEAT = 0x50494C00  # which beat ticks
PULSE = 0x50494C01  # one pulse at a time
RELAY = 0x50494C02  # which relay announces
PARKED = 0x50494C03  # one process at a time goes through what is parked
ALERT = 0x50494C04  # with the hash of a kind and subject: one process at a time is at an alert
