"""Runs of partitioned graphs on several processes or hosts."""
