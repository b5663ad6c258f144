"""What needs a device or other processes: XLA, GPUs, workers, and the simulation of devices."""
