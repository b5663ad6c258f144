"""The event stream of a run, its summaries, and its file formats."""
