"""What bin/run, bin/test and bin/check do, with nothing but Python's standard library."""
