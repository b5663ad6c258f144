"""Python source of a run, for readers."""
