"""Headless Chromium, controlled over a pipe, for tests of pages."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE: Final = 60.0
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_NO_GPU: Final = ("--disable-gpu",)
# three-dimensional drawing without a GPU, by the processor
_SOFTWARE_GPU: Final = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")


def program() -> str | None:
    """Path of an installed browser, or None."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Chromium:
    """A browser with one page; `requests` and `complaints` are recorded since it was opened."""

    def __init__(
        self, folder: Path, size: tuple[int, int] = (1280, 800), draws_3d: bool = False
    ) -> None:
        path = program()
        assert path is not None
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        log = (os.POSIX_SPAWN_OPEN, 2, str(folder / "log"), os.O_WRONLY | os.O_CREAT, 0o600)
        # copies beyond 4, as either pipe may be 3 or 4 itself
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_browser, from_browser)]
        self._process = os.posix_spawn(
            path,
            [
                path,
                *_OPTIONS,
                *(_SOFTWARE_GPU if draws_3d else _NO_GPU),
                f"--user-data-dir={folder}",
            ],
            os.environ,
            file_actions=[
                log,
                (os.POSIX_SPAWN_DUP2, 2, 1),
                (os.POSIX_SPAWN_DUP2, ends[0], 3),
                (os.POSIX_SPAWN_DUP2, ends[1], 4),
            ],
        )
        for end in (to_browser, from_browser, *ends):
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._frames: list[str] = []
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=False,
        )

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a request to the browser and return its reply."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE
        while True:
            reported = self._receive(deadline)
            if reported.get("id") == self._number:
                assert "error" not in reported, reported
                result: dict[str, Any] = reported["result"]
                return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], deadline - time.monotonic())
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 16)
            assert data, "the browser is gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        reported: dict[str, Any] = json.loads(line)
        self._notice(reported.get("method", ""), reported.get("params", {}))
        return reported

    def _notice(self, event: str, reported: dict[str, Any]) -> None:
        if event == "Target.attachedToTarget" and self._session:
            self._frames.append(reported["sessionId"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(reported["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(reported["exceptionDetails"]))
        elif event == "Log.entryAdded":
            self.complaints.append(reported["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and reported["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(reported["args"]))

    def open(
        self,
        file: Path | str,
        address: str = "",
        dark: bool = False,
        drawn: str = "document.body?.dataset.ready ?? null",
    ) -> float:
        """Open a file or URL and wait until it has `drawn` itself; returns the seconds taken."""
        url = file if isinstance(file, str) else file.as_uri()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url="about:blank")
        self.requests.clear()
        self.complaints.clear()
        start = time.monotonic()
        self.call("Page.navigate", url=f"{url}{address}")
        while not self.value(drawn):
            assert time.monotonic() < start + _PATIENCE, self.complaints
            time.sleep(0.02)
        return time.monotonic() - start

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        reported = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in reported, reported
        return reported["result"].get("value")

    @contextmanager
    def in_frame(self, index: int) -> Iterator[None]:
        """Direct calls to a frame of the page; only frames in a process of their own count."""
        options = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
        self.call("Target.setAutoAttach", **options)
        page, self._session = self._session, self._frames[index]
        for domain in ("Runtime", "Log"):
            self.call(f"{domain}.enable")
        try:
            yield
        finally:
            self._session = page

    def click(self, selector: str) -> None:
        """Click the center of the first matching element."""
        middle = (
            f"(() => {{ const box = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        x, y = self.value(middle)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type a text at the cursor and press Enter."""
        self.call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", windowsVirtualKeyCode=13)

    def screenshot(self, file: Path) -> None:
        """Save a screenshot as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """End the browser."""
        os.kill(self._process, signal.SIGTERM)
        os.waitpid(self._process, 0)
        for end in (self._write, self._read):
            os.close(end)
