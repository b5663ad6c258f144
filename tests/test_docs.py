"""Command lines and programs in docs/ run in the order of the page."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.shell import run, run_alone

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
SAMPLES = ROOT / "fixtures" / "messages"
# about error texts of TensorFlow; their graphs are in fixtures/messages
MESSAGES = sorted((ROOT / "docs" / "messages").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
# what runs the blocks of each kind; what is shown of output or settings has another kind
RUN_BY = {
    "": ["bash", "-e", "-o", "pipefail", "-c"],
    "sh": ["bash", "-e", "-o", "pipefail", "-c"],
    "python": ["python", "-c"],
}


@pytest.fixture
def folder(page: Path, tmp_path: Path) -> Path:
    """A folder with the example graphs, the fixtures and the pages, or as empty as a page says."""
    if "in an empty folder" in page.read_text():
        return tmp_path
    for name in ("fixtures", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    files = [*(ROOT / "fixtures" / "graphs").glob("*.pb")]
    files += SAMPLES.iterdir()
    for file in files:
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


def test_the_folder_for_the_commands_of_pages_has_their_graphs(tmp_path: Path) -> None:
    for name in ("fixtures", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    blocks = BLOCK.findall((ROOT / "docs" / "README.md").read_text())
    (block,) = [block for kind, block in blocks if kind == "sh"]
    for _ in range(2):
        done = run([*RUN_BY["sh"], block], tmp_path)
        assert done.returncode == 0, done.stderr
    folder = tmp_path / "build" / "pages"
    assert "/build/\n" in (ROOT / ".gitignore").read_text()
    names = {file.name for file in folder.iterdir()}
    files = [*(ROOT / "fixtures" / "graphs").glob("*.pb"), *SAMPLES.iterdir()]
    assert {file.name for file in files} | {"fixtures", "docs"} == names
    assert all(file.exists() for file in folder.iterdir())


# the others are typed in `make sweep`
SOON = ("edit", "guide", "format", "library", "usage")


def _typed(page: Path) -> Any:
    marks = [] if page.stem in SOON else [pytest.mark.slow]
    return pytest.param(page, id=page.stem, marks=marks)


@pytest.mark.parametrize("page", [_typed(page) for page in PAGES])
def test_the_blocks_of_a_page_run(page: Path, folder: Path) -> None:
    for kind, block in BLOCK.findall(page.read_text()):
        if kind not in RUN_BY or (_needs_chromium(block) and not shutil.which("chromium")):
            continue
        lines = re.sub(r" +# .*|\\\n", " ", block).splitlines()
        if all(line.startswith("cfgraph ") for line in lines):
            for line in lines:
                printed, status = run_alone(line, folder)
                assert status == 0, f"{line}\n{printed}"
            continue
        done = run([*RUN_BY[kind], block], folder)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir()))
def test_a_page_links_the_samples_that_it_types(sample: str) -> None:
    typed = re.compile(rf"(?<![\w/.\[]){re.escape(sample)}")
    pages = [page.read_text() for page in MESSAGES if typed.search(page.read_text())]
    assert pages, "no page has the sample"
    assert all(f"(../../fixtures/messages/{sample})" in page for page in pages)


TRANSCRIPT = re.compile(r"^```console\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
WITH_TRANSCRIPTS = [page for page in (*PAGES, *MESSAGES) if TRANSCRIPT.search(page.read_text())]
# a number in a transcript that differs from run to run ends with this
VARYING = "…"


@pytest.mark.parametrize("page", WITH_TRANSCRIPTS, ids=lambda page: page.stem)
def test_the_transcripts_of_a_page_are_what_is_printed(
    page: Path, folder: Path, update: bool
) -> None:
    def checked(match: re.Match[str]) -> str:
        """The block, with the current output where it differs and is to be updated."""
        written = ""
        for typed in re.split(r"^\$ ", match[1], flags=re.MULTILINE)[1:]:
            line, _, shown = typed.partition("\n")
            printed, _ = run_alone(line, folder)
            pattern = re.escape(shown.rstrip()).replace(VARYING, r"\S*")
            same = re.fullmatch(pattern, printed.rstrip())
            assert same or update, f"{line}\n{printed}"
            output = shown if same else printed
            written += f"$ {line}\n{output.rstrip()}".rstrip() + "\n"
        return f"```console\n{written}```"

    text = page.read_text()
    if (current := TRANSCRIPT.sub(checked, text)) != text and update:
        page.write_text(current)


def _needs_chromium(block: str) -> bool:
    return "chromium" in block


def test_the_navigation_of_the_site_has_every_page() -> None:
    listed = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in PAGES if f" {page.name}\n" not in listed] == []


WITH_LINKS = [ROOT / "README.md", *PAGES, *MESSAGES]


def test_the_list_of_error_texts_is_complete() -> None:
    folder = ROOT / "docs" / "messages"
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    pages = [page for page in MESSAGES if page.name != "README.md"]
    titles = {page.read_text().partition("\n")[0].removeprefix("# "): page.name for page in pages}
    assert dict(listed) == titles
    assert len(titles) >= 20


def test_the_map_lists_every_page() -> None:
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert {page.name for page in PAGES} - {"README.md"} == listed


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: page.stem)
def test_a_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    paths = [os.path.normpath(page.parent / link) for link in links]
    assert not [path for path in paths if not os.path.exists(path)]


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: page.stem)
def test_an_anchor_of_a_page_is_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", page.read_text())
    targets = [(page.parent / name if name else page, anchor) for name, anchor in links]
    assert not [(path, anchor) for path, anchor in targets if anchor not in _anchors(path)]


def _anchors(page: Path) -> set[str]:
    text = page.read_text()
    named = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)
    headings = re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE)
    return {*named, *(re.sub(r"[^\w -]", "", item).lower().replace(" ", "-") for item in headings)}
