"""Give every node a device: as asked, beside what it shares with, or where it costs least."""
