"""Backends, which need a device or other processes: XLA, GPUs, workers, simulated devices."""
