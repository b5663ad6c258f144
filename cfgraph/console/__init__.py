"""What a person sees and types: tables, values, traces, JSON, files in and out."""
