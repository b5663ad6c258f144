"""Confinement of a process that works on hostile files: no file to write, no network, no program.

    python -m cfgraph.processes.confinement MODULE SOCKET LIFELINE [--confined]

runs `main` of a module with the descriptor of its socket. The process is confined before it imports
the module, since threads that libraries start before would not be, and it ends as the other end of
the lifeline, a pipe, is closed. Without `--confined`, only the lifeline counts.

Landlock denies each kind of write to a file system, and a filter of system calls (seccomp) denies
sockets, new processes, and signals to others. Both hold for all threads that start later and cannot
be undone. A system that lacks one of them goes without it: the process then has its limits alone.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib
import os
import platform
import resource
import select
import signal
import struct
import sys
from typing import Final

_NO_NEW_PRIVILEGES: Final = 38
_SECCOMP: Final = 22
_SECCOMP_FILTER: Final = 2
# of all architectures: landlock_create_ruleset, landlock_restrict_self
_CREATE_RULESET: Final = 444
_RESTRICT_SELF: Final = 446
_RULESET_VERSION: Final = 1
# Landlock's rights that change a file system: WRITE_FILE, REMOVE_DIR to MAKE_SYM; REFER since
# version 2, TRUNCATE since 3
_WRITES: Final = 0b1_1111_1111_0010
_WRITES_SINCE: Final = {2: 1 << 13, 3: 1 << 14}
_TCP_SINCE: Final = 4
_TCP: Final = 0b11

# the architecture as seccomp names it, and the numbers of system calls
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE3: Final = 435
_TGKILL: Final = {"x86_64": 234, "aarch64": 131}
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# socket, connect, accept, sendto of others, bind, listen, accept4; fork, vfork, execve, execveat;
# kill, tkill, rt_sigqueueinfo, rt_tgsigqueueinfo; ptrace, process_vm_readv, process_vm_writev;
# unshare, setns, mount, bpf, perf_event_open, userfaultfd, add_key, request_key, keyctl; the modes,
# owners, times, and extended attributes of files, which Landlock leaves out
_DENIED: Final = {
    "x86_64": (
        *(41, 42, 43, 49, 50, 288, 57, 58, 59, 322, 62, 200, 129, 297, 101, 310, 311),
        *(272, 308, 165, 321, 298, 323, 248, 249, 250),
        *(90, 91, 268, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199),
    ),
    "aarch64": (
        *(198, 203, 202, 200, 201, 242, 221, 281, 129, 130, 138, 240, 117, 270, 271),
        *(97, 268, 40, 280, 241, 282, 217, 218, 219),
        *(52, 53, 54, 55, 88, 5, 6, 7, 14, 15, 16),
    ),
}
# of all architectures: pidfd_send_signal, io_uring_setup, pidfd_open, pidfd_getfd, fchmodat2,
# setxattrat, removexattrat
_DENIED_EVERYWHERE: Final = (424, 425, 434, 438, 452, 463, 466)
# numbers from here on are those of another way to call the system
_X32: Final = 0x4000_0000
_CLONE_THREAD: Final = 0x10000
# instructions: load a word, jump if equal, if at least, if a bit is set, and return
_LOAD, _EQUAL, _AT_LEAST, _BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


def confine() -> None:
    """Confine this process; called before it starts threads."""
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0:
        _deny_writes(libc)
        _deny_calls(libc)


def _deny_writes(libc: ctypes.CDLL) -> None:
    """Deny each write to a file system, and TCP: the set of rules has no exception."""
    version = libc.syscall(_CREATE_RULESET, None, 0, _RULESET_VERSION)
    if version < 1:
        return
    writes = _WRITES | sum(right for since, right in _WRITES_SINCE.items() if version >= since)
    rules = struct.pack("<QQ", writes, _TCP if version >= _TCP_SINCE else 0)
    size = len(rules) if version >= _TCP_SINCE else len(rules) // 2
    ruleset = libc.syscall(_CREATE_RULESET, rules, size, 0)
    if ruleset >= 0:
        libc.syscall(_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)


class _FilterProgram(ctypes.Structure):
    """A filter as prctl takes it."""

    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _deny_calls(libc: ctypes.CDLL) -> None:
    """Deny system calls that reach the network, other processes, or programs."""
    machine = platform.machine()
    if machine in _ARCHITECTURES:
        code = _filter(machine, os.getpid())
        program = _FilterProgram(len(code) // 8, code)
        libc.prctl(_SECCOMP, _SECCOMP_FILTER, ctypes.byref(program), 0, 0)


def _filter(machine: str, pid: int) -> bytes:
    """The filter: a denied call fails; threads may start, and the process may signal itself."""
    denied = _ERROR | errno.EPERM
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, denied),
        # the C library starts a thread with clone instead, whose flags can be seen
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_EQUAL, 0, 4, _CLONE[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_BIT, 0, 1, _CLONE_THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, denied),
        (_EQUAL, 0, 4, _TGKILL[machine]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, pid),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, denied),
    ]
    for number in (*_DENIED[machine], *_DENIED_EVERYWHERE):
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, denied)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def watch_parent(lifeline: int) -> None:
    """Let the system end this process as the other end of a pipe is closed, whatever it does."""
    if sys.platform == "linux":  # this signal ends a process that is stopped, too
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # closed before
        os._exit(0)


if __name__ == "__main__":
    watch_parent(int(sys.argv[3]))
    if sys.argv[4:]:
        confine()
    importlib.import_module(sys.argv[1]).main(int(sys.argv[2]))
