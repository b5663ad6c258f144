"""Messages of converters for lowered graphs, and for the results of `functionalize`."""
