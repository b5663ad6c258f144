"""Groups of elementwise nodes as one generated kernel each, for a real GPU."""
