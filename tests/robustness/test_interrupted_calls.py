"""Calls of MCP tools that are cancelled, and servers that end in the middle of calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("mcp") is None, reason="the extra `mcp` is not installed"),
    pytest.mark.usefixtures("signals_enabled"),
]
ROOT = Path(__file__).parents[2] / "fixtures" / "robustness"
ENDLESS = {"graph": "clustered_forever.pb", "feed": ["x=1"], "max_iterations": 10**12}
# of a call, which ends much later than what a test waits for
_CALL_SECONDS = 120
_PATIENCE = 20


class Client:
    """A client of one server, which writes and reads lines of JSON."""

    def __init__(self, folder: Path) -> None:
        options = ["--root", str(ROOT), "--call-timeout", str(_CALL_SECONDS)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cfgraph", "mcp", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        self._answers: dict[int, Any] = {}
        self._arrived = threading.Condition()
        self._number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        client = {"name": "test", "version": "1"}
        parameters = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        self.answer(self.request("initialize", parameters))
        self.notify("notifications/initialized", {})

    def close(self) -> None:
        with self.process:
            self.process.kill()
            self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            with self._arrived:
                self._answers[message.get("id")] = message
                self._arrived.notify_all()

    def notify(self, method: str, parameters: Any, **members: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": parameters, **members}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, parameters: Any) -> int:
        self._number += 1
        self.notify(method, parameters, id=self._number)
        return self._number

    def call(self, name: str, arguments: Any) -> int:
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def answer(self, number: int) -> Any:
        with self._arrived:
            assert self._arrived.wait_for(lambda: number in self._answers, _PATIENCE)
            return self._answers[number]


@contextmanager
def server(folder: Path) -> Iterator[Client]:
    client = Client(folder)
    try:
        yield client
    finally:
        client.close()


def commands_of(client: Client) -> set[int]:
    """The processes of the calls of a server."""
    tasks = Path(f"/proc/{client.process.pid}/task")
    found = set[int]()
    with suppress(OSError):
        for task in tasks.iterdir():
            found.update(map(int, (task / "children").read_text().split()))
    return found


def wait_until(condition: Any) -> None:
    until = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("delay", [0, 0.02, 0.5, 2])
def test_a_cancelled_call_frees_its_place(delay: float, tmp_path: Path) -> None:
    with server(tmp_path) as client:
        calls = [client.call("run", ENDLESS) for _ in range(5)]  # of which two run at once
        time.sleep(delay)
        for number in calls:
            client.notify("notifications/cancelled", {"requestId": number})
        answer = client.answer(client.call("show", {"graph": "forever.pb"}))
        assert not answer["result"]["isError"]
        wait_until(lambda: not commands_of(client))
        assert not list(tmp_path.glob("*/content/*"))


def test_a_call_goes_on_while_another_is_cancelled(tmp_path: Path) -> None:
    with server(tmp_path) as client:
        endless = client.call("run", ENDLESS)
        wait_until(lambda: commands_of(client))
        number = client.call("check", {"graphs": ["forever.pb", "nan.pb"]})
        wait_until(lambda: len(commands_of(client)) == 2)
        client.notify("notifications/cancelled", {"requestId": endless})
        assert "result" in client.answer(number)


@pytest.mark.parametrize("end", ["input", "SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"])
def test_the_end_of_a_server_ends_its_calls(end: str, tmp_path: Path) -> None:
    with server(tmp_path) as client:
        for _ in range(2):
            client.call("run", ENDLESS)
        wait_until(lambda: len(commands_of(client)) == 2)
        time.sleep(1)  # both have begun to run
        commands = commands_of(client)
        if end == "input":
            assert client.process.stdin is not None
            client.process.stdin.close()
        else:
            client.process.send_signal(signal.Signals[end])
        status = client.process.wait(_PATIENCE)
        assert status == {"input": 0, "SIGTERM": 143, "SIGINT": 130, "SIGHUP": 129}.get(end, -9)
        wait_until(lambda: not any(map(is_running, commands)))
        assert end == "SIGKILL" or not list(tmp_path.iterdir())
