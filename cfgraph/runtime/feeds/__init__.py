"""The feed language: values for `--feed` and `--expect`, and their conversion to arrays."""
