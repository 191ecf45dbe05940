"""bin/chaos: the real product under faults, and an exact comparison of what it says with what was really sent."""
