"""Runs graphs on simulated devices, and shows what happened."""
