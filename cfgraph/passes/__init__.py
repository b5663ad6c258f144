"""Graph rewrites: one file or one folder per pass."""
