"""Benchmarks: cfgraph and TensorFlow on the same files in one run, as ratios."""
