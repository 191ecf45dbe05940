"""What bin/bench measures: real processes, real HTTP, durable servers. See docs/performance.md."""
