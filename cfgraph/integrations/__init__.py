"""What needs another program or another format."""
