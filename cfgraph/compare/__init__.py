"""Whether two graphs are the same: by structure, and by running them."""
