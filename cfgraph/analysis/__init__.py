"""What can be known of a graph without running it."""
