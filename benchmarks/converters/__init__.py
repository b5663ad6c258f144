"""What converters say to lowered graphs, and to what `functionalize` makes of them."""
