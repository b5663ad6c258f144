"""Hosts as network namespaces: a bridge, and a pair of virtual interfaces for each host."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from cfgraph.backends.workers.processes import ProcessHandle, ProcessTransport

_NETWORK = "10.231.77"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@dataclass(frozen=True)
class Namespace:
    """A host: the name of its namespace, its address, and its interface on the bridge."""

    name: str
    address: str
    interface: str

    def cut_off(self) -> None:
        _ip("link", "set", self.interface, "down")

    def delay(self, milliseconds: int) -> None:
        """Delay what arrives. Skips the test where the kernel cannot."""
        delay = f"{milliseconds}ms"
        command = ["tc", "qdisc", "add", "dev", self.interface, "root", "netem", "delay", delay]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no delay on a network interface: {done.stderr.strip()}")


@contextmanager
def connected_namespaces(count: int) -> Iterator[list[Namespace]]:
    """Namespaces on one bridge. Skips the test where they cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip")
    prefix = f"cfg{os.getpid() % 100_000}"
    bridge, hosts = f"{prefix}b", list[Namespace]()
    try:
        try:
            _ip("link", "add", bridge, "type", "bridge")
            _ip("link", "set", bridge, "up")
            for number in range(count):
                interface = f"{prefix}h{number}"
                host = Namespace(f"{prefix}n{number}", f"{_NETWORK}.{number + 2}", interface)
                _ip("netns", "add", host.name)
                hosts.append(host)
                inner = ["peer", "name", "eth0", "netns", host.name]
                _ip("link", "add", interface, "type", "veth", *inner)
                _ip("link", "set", interface, "master", bridge)
                _ip("link", "set", interface, "up")
                inside = ["-n", host.name]
                _ip(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
                _ip(*inside, "link", "set", "eth0", "up")
                _ip(*inside, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces: {error.stderr.strip()}")
        yield hosts
    finally:
        for host in hosts:
            # with its namespace it would disappear later
            subprocess.run(["ip", "link", "del", host.interface], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


@dataclass(frozen=True)
class OnNamespaces:
    """Workers of a session, each on its own host."""

    hosts: tuple[Namespace, ...]
    lost_after: float = 10.0

    @property
    def workers(self) -> int:
        return len(self.hosts)

    def transport(self) -> ProcessTransport:
        return _NamespaceTransport(self.hosts, self.lost_after)


class _NamespaceTransport(ProcessTransport):
    def __init__(self, hosts: Sequence[Namespace], lost_after: float) -> None:
        super().__init__(lost_after)
        self.hosts = hosts

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> list[ProcessHandle]:
        for index, host in enumerate(self.hosts):
            handle = ProcessHandle(["ip", "netns", "exec", host.name])
            self._handles.append(handle)
            handle.call("start", index, secret, host.address, self._lost_after).result(30)
        return list(self._handles)
