"""Converters of models to other formats: what they refuse, and whether their models agree."""
