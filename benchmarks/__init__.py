"""Benchmarks: cfgraph beside TensorFlow on the same files in one run, as ratios."""
