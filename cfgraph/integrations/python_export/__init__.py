"""Python source of a run, for readers."""

from typing import Final

PROVIDES: Final = {("converter", "py"): "convert:convert_to_python"}
