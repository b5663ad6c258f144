"""The documentation site: pages that are generated from the commands, codes, and transcripts."""
