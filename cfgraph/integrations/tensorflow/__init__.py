"""TensorFlow as the other side of a comparison: its modes, each in a process of its own."""
