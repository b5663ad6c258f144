"""Child processes: their start, messages, shared memory, confinement, and end."""
