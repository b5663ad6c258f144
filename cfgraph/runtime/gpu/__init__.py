"""Real GPUs, through CuPy."""
