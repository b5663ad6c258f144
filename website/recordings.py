"""Pictures of real output: recorded terminal sessions and a drawn graph, as SVG.

`python -m website.recordings` writes docs/recordings/. Drawing needs node, which runs the layout
that the pages of `--html` contain.
"""

from __future__ import annotations

import html
import io
import re
import subprocess
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from website.transcripts import ROOT, message_folder, transcript

FOLDER: Final = ROOT / "docs" / "recordings"
SESSIONS: Final = {
    "session": (
        "cfgraph show count.graph",
        "cfgraph run count.graph --feed n=3 --fetch exit --tap add",
        "cfgraph check mismatch.graph --fetch C",
    ),
    "dead": ("cfgraph explain retval.graph loss --feed x=3 --feed is_training=false",),
    "hang": ("cfgraph run recv.graph --feed x=3 --fetch y",),
    "overlap": ("cfgraph explain count.graph /loop",),
    "differ": (
        "cfgraph cluster mismatch.graph --deadness off -o wrong.pb -q",
        "cfgraph diff mismatch.graph wrong.pb --run",
    ),
    "cut": ("cfgraph explain cut.graph w loss",),
}
DRAWN: Final = "counter"
_COLUMNS: Final = 88
_VIZ: Final = ROOT / "cfgraph" / "console" / "picture" / "assets" / "viz-global.js"
_DRAW: Final = """
require(process.argv[1]).instance().then(viz => process.stdout.write(
  viz.renderString(require("fs").readFileSync(0, "utf8"), {format: "svg"})));
"""
_THEME: Final = TerminalTheme(
    (30, 34, 46),
    (205, 211, 226),
    [
        *((69, 71, 90), (243, 139, 168), (166, 227, 161), (249, 226, 175)),
        *((137, 180, 250), (245, 194, 231), (148, 226, 213), (186, 194, 222)),
    ],
)
# the fonts of another host; the local monospace font has the same width
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", flags=re.DOTALL)


def recording(name: str) -> str:
    """Run the commands of a session, and return their terminal as SVG."""
    console = Console(
        record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False
    )
    with message_folder() as folder:
        for line in SESSIONS[name]:
            console.print(Text.assemble(("$ ", "green"), (line, "bold")))
            shown = transcript(line, folder, color=True).output
            rows = [row.rstrip() for row in shown.rstrip().splitlines()]
            console.print(Text.from_ansi("\n".join(rows)), overflow="fold")
        # the frame of the picture cuts off the foot of its last line
        console.print()
    svg = console.export_svg(title="cfgraph", theme=_THEME, unique_id=name)
    return _FONT.sub("", svg).replace("Fira Code", "monospace") + "\n"


def drawing() -> str:
    """Draw the graph of the first screen."""
    graph = f"fixtures/graphs/{DRAWN}.pb"
    with message_folder() as folder:
        dot = transcript(f"cfgraph show {graph} --format dot", folder).output
    done = subprocess.run(
        ["node", "-e", _DRAW, str(_VIZ)],
        input=dot,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def texts(svg: str) -> str:
    """The characters of a picture, without blanks."""
    parts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return re.sub(r"\s+", "", html.unescape("".join(parts)))


def write(folder: Path) -> None:
    """Write all pictures."""
    for name in SESSIONS:
        (folder / f"{name}.svg").write_text(recording(name), encoding="utf-8")
    (folder / f"{DRAWN}.svg").write_text(drawing(), encoding="utf-8")


if __name__ == "__main__":
    write(FOLDER)
