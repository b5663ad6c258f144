"""The `.graph` text format: lexer, parser, printer, and attribute inference."""
