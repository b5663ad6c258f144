"""The command `run`: request, observers, and reports of values, memory, and time."""
