"""`cfgraph` and `python` for shell lines, forked from a process that has imported all of cfgraph.

A line of bash starts one program for each part of its pipes, and most of the time of each went into
imports. Here two small programs take their place on the PATH: they pass their arguments, folder,
environment and streams to a server, which forks. Each command still is a process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

# ends as what it ran did: with its status, or by the same signal
CLIENT = """#!{python} -ISE
import os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    words = [{name!r}, os.getcwd(), *sys.argv[1:]]
    words = [len(words), *words, *(f"{{key}}={{value}}" for key, value in os.environ.items())]
    data = "\\0".join(map(str, words)).encode(errors="surrogateescape")
    line.sendall(len(data).to_bytes(8, "big"))
    socket.send_fds(line, [b"."], [0, 1, 2])
    line.sendall(data)
    status = line.recv(2)
if not status:
    os._exit(70)
if status[0]:
    import signal
    if status[0] != 9:
        signal.signal(status[0], signal.SIG_DFL)
    os.kill(os.getpid(), status[0])
os._exit(status[1])
"""


@functools.cache
def programs() -> Path:
    """Return a folder with the two programs; the server ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="cfgraph-warm-")
    address = f"{folder.name}/socket"
    for name in ("cfgraph", "python"):
        file = Path(folder.name, name)
        file.write_text(CLIENT.format(python=sys.executable, address=address, name=name))
        file.chmod(0o755)
    command = [sys.executable, "-m", "tests.warm", address]
    server = subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"

    def end() -> None:
        server.terminate()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    return Path(folder.name)


def serve(address: str) -> None:
    """Import all of cfgraph, then fork for every request."""
    import cfgraph

    for module in pkgutil.walk_packages(cfgraph.__path__, "cfgraph."):
        # the last one is loaded by Model Explorer, which need not be installed
        if module.name not in ("cfgraph.__main__", "cfgraph.model_explorer.main"):
            __import__(module.name)
    # the children are waited for by no one
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            line, _ = listener.accept()
            with line:
                if os.fork() == 0:
                    listener.close()
                    _answer(line)
                    os._exit(0)


def _answer(line: socket.socket) -> None:
    """Run the requested command in a child process, and send its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size = int.from_bytes(_received(line, 8), "big")
    _, files, *_ = socket.recv_fds(line, 1, 3)
    count, *words = _received(line, size).decode(errors="surrogateescape").split("\0")
    (name, folder, *arguments), settings = words[: int(count)], words[int(count) :]
    child = os.fork()
    if child == 0:
        line.close()
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(setting.split("=", 1) for setting in settings)
        os._exit(_run(name, arguments))
    for file in files:
        os.close(file)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        line.sendall(bytes([max(-code, 0), max(code, 0)]))


def _received(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += line.recv(size - len(data)) or sys.exit(1)
    return data


def _run(name: str, arguments: list[str]) -> int:
    """Run a command, or a program of Python, as a process that has just begun would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for mode, (file, stream) in zip("rww", enumerate(("stdin", "stdout", "stderr")), strict=True):
        buffering = 1 if file == 2 or os.isatty(file) else -1
        text = open(file, mode, buffering, encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, stream, text)
        setattr(sys, f"__{stream}__", text)
    try:
        code = _status(name, arguments)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    return code


def _status(name: str, arguments: list[str]) -> int:
    try:
        if name == "cfgraph":
            from cfgraph.__main__ import main

            sys.argv = ["cfgraph", *arguments]
            main()
        else:
            _python(arguments)
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
            return 1
        return left.code or 0
    return 0


def _python(arguments: list[str]) -> None:
    kind, *rest = arguments
    if kind == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m" or kind.startswith("-"):
        os.execv(sys.executable, [sys.executable, *arguments])
    else:
        sys.argv, sys.path[0] = arguments, str(Path(kind).parent.absolute())
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
