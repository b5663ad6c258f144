"""The ops: one class each, one file a family."""
