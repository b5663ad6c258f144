"""StableHLO modules, read and run in a process of their own."""
