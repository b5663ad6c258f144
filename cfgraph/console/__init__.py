"""Command output: text, tables, JSON, CI formats, explanations, traces, and pictures."""
