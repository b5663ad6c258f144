"""Integrations, which need another program or another format."""
