"""Placement: a device for every node, from requests, colocation and estimated cost."""
