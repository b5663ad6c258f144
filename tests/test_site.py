"""The documentation site: generated pages, and the built site where mkdocs is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from urllib.parse import quote, unquote, urlsplit

import pytest

from cfgraph.analysis.findings import catalog
from cfgraph.cli.configuration import table_name
from tests.cli.chromium import Chromium, program
from tests.sampled import sampled
from tests.shell import run_alone
from website.code_pages import reported, samples
from website.command_pages import command_names, example_transcripts
from website.transcripts import Transcript

HAS_MKDOCS = find_spec("material") is not None and find_spec("mkdocstrings") is not None
NEEDS_MKDOCS = pytest.mark.skipif(not HAS_MKDOCS, reason="the extra `docs` is not installed")


# tests/cli/test_process.py runs the examples of all commands one by one
@pytest.mark.parametrize("name", sampled(command_names(), 8))
def test_the_examples_on_the_page_of_a_command_succeed(name: str) -> None:
    failed = [example for example in example_transcripts(name) if example.status]
    assert not failed


# codes without an example on their page: these need several workers, extras or their absence, or a
# graph that no page could show
WITHOUT_EXAMPLE = {
    *("CFG720", "CFG721", "CFG722", "CFG723", "CFG710", "CFG715", "CFG716", "CFG807", "CFG809"),
    *("CFG811", "CFG111", "CFG135", "CFG222", "CFG410", "CFG420", "CFG421", "CFG422"),
    *("CFG602", "CFG603", "CFG604", "CFG607", "CFG609"),
    *("CFG503", "CFG504", "CFG505", "CFG508", "CFG510", "CFG707", "CFG709"),
}


def test_every_code_has_an_example_that_reports_it() -> None:
    assert samples().keys() == catalog().keys() - WITHOUT_EXAMPLE
    shown = [
        (code, reported(sample, typed)[-1]) for code, group in samples().items() for sample in group
    ]
    assert [last for code, last in shown if code not in last.output] == []


def typed(line: str, folder: Path) -> Transcript:
    return Transcript(line, *run_alone(line, folder))


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


class References(HTMLParser):
    """The links, the resources that a page loads, and the names in it that a link may have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.resources.append(found["href"])
        elif "src" in found:
            self.resources.append(found["src"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, References]:
    """The references of every page except that for missing pages, whose links are absolute."""
    files = sorted(site.rglob("*.html"))
    return {
        file: References(file.read_text(encoding="utf-8"))
        for file in files
        if file.name != "404.html"
    }


@NEEDS_MKDOCS
def test_a_link_of_the_site_leads_to_a_page_and_a_heading(
    site: Path, pages: dict[Path, References]
) -> None:
    broken = []
    for file, page in pages.items():
        for link in (*page.links, *page.resources):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = file if not parts.path else Path(os.path.normpath(file.parent / parts.path))
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {parts.fragment}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                broken.append(f"{file.relative_to(site)}: {link}")
    assert broken == []


@NEEDS_MKDOCS
def test_the_site_loads_nothing_from_another_host(
    site: Path, pages: dict[Path, References]
) -> None:
    outside = [
        f"{file.relative_to(site)}: {resource}"
        for file, page in pages.items()
        for resource in page.resources
        if urlsplit(resource).netloc
    ]
    outside += [
        f"{file.relative_to(site)}: {address}"
        for file in site.rglob("*.css")
        for address in re.findall(r"url\(['\"]?((?:https?:)?//[^)]*)", file.read_text("utf-8"))
    ]
    assert outside == []


@NEEDS_MKDOCS
def test_every_code_and_command_has_an_address(site: Path) -> None:
    wanted = [f"errors/{code}" for code in catalog()]
    wanted += [f"commands/{table_name(name)}" for name in command_names()]
    assert [path for path in wanted if not (site / path / "index.html").is_file()] == []


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of the site on a local server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


NEEDS_BROWSER = pytest.mark.skipif(program() is None, reason="no Chromium is installed")
# a text as it is pasted, and the page that explains it
SEARCHES = {
    "Retval[0] does not have value": "messages/retval-does-not-have-value/",
    "inputs from different frames": "messages/inputs-from-different-frames/",
    "Attempting to use uninitialized value w": "messages/attempting-to-use-uninitialized-value/",
    "No gradients provided for any variable": "messages/no-gradients-provided-for-any-variable/",
    "passed float incompatible with expected float_ref": (
        "messages/incompatible-with-expected-float-ref/"
    ),
    "CFG702": "errors/CFG702/",
}
_LOADED = "document.readyState == 'complete'"
_CUT_CODE = """[...document.querySelectorAll("pre > code")]
    .filter((block) => block.scrollWidth > block.clientWidth).length"""
_FIRST_RESULT = "document.querySelector('.md-search-result__link')?.href ?? null"
# asks again every two seconds: a query that comes before the index is loaded gets no answer
_PATIENT_FIRST_RESULT = """(() => {
  const found = document.querySelector('.md-search-result__link');
  const box = document.querySelector('.md-search__input');
  if (!found && box && performance.now() > (window.asked ?? 0) + 2000) {
    window.asked = performance.now();
    box.value = box.value.endsWith(' ') ? box.value.trimEnd() : `${box.value} `;
    box.dispatchEvent(new Event('keyup', {bubbles: true}));
  }
  return found?.href ?? null;
})()"""


@NEEDS_MKDOCS
@NEEDS_BROWSER
@pytest.mark.parametrize("width", [360, 1400])
def test_pages_fit_the_screen_and_ask_no_other_host(
    width: int, address: str, tmp_path: Path
) -> None:
    browser = Chromium(tmp_path, (width, 900))
    try:
        pages = ("", "usage/", "ci/", "commands/run/", "errors/CFG201/", "api/")
        for page in (*pages, "messages/recv-hangs/"):
            for dark in (False, True):
                browser.open(
                    f"{address}{page}", dark=dark, drawn="document.readyState == 'complete'"
                )
                assert browser.value("document.documentElement.scrollWidth") == width, page
                assert browser.value(_CUT_CODE) == 0, page
                scheme = browser.value("document.body.dataset.mdColorScheme")
                assert scheme == ("slate" if dark else "default")
                assert browser.complaints == []
                outside = [url for url in browser.requests if not url.startswith(address)]
                assert [url for url in outside if not url.startswith(("data:", "about:"))] == []
    finally:
        browser.close()


@NEEDS_MKDOCS
@NEEDS_BROWSER
def test_the_search_finds_the_page_of_a_pasted_text(address: str, tmp_path: Path) -> None:
    browser = Chromium(tmp_path)
    try:
        found = {}
        for text in SEARCHES:
            browser.open(address, f"?q={quote(text)}", drawn=_PATIENT_FIRST_RESULT)
            found[text] = urlsplit(browser.value(_FIRST_RESULT)).path.lstrip("/")
        assert found == SEARCHES
    finally:
        browser.close()
