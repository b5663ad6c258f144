"""Answers of `explain`: a node, a pair, a run, edges between frames, and lines of code."""
