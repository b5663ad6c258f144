"""A server of the Model Context Protocol: the commands that read graphs, as tools."""
