"""Cut a placed graph at device boundaries, and let every device run its own loops."""
