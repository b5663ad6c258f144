"""Data structures for graphs, and the file formats that store them."""
