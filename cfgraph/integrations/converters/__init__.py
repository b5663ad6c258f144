"""Converters of models to other formats: what they refuse, known without them."""
