"""The installation and its devices, bug reports, and sample graphs."""
