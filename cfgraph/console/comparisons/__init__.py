"""Reports of `diff` and `reduce`, on two graphs, on their runs, and on modes of TensorFlow."""
