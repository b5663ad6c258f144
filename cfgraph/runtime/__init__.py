"""Execution of graphs on simulated or real devices, with tracing."""
