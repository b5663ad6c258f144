"""What the devices of a run hold, within which limits, and what is copied between them."""
