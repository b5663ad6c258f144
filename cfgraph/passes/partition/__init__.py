"""Partitioning: a placed graph cut at device boundaries, with loops driven on every device."""
