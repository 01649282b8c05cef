"""Machines that are really apart, on this one: each has its own network, file system, processes and name.

A machine is a process with namespaces of its own, plugged into the first of them, so that nothing of the real machine's
network is touched, and everything is gone when the process is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# An own /tmp (Ray's sessions), shared memory and /mnt (the disk); of the rest a machine only reads what is installed.
# The loop is what a machine's first process does: it takes the status of those whose parents have ended.
_MACHINE = """set -e
mount -t tmpfs tmpfs /mnt; mkdir /mnt/disk /mnt/shared
mount --bind "$2" /mnt/shared; mount --bind "$3" /etc/hosts
mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp
hostname "$1"; ip link set lo up; touch /mnt/ready
while :; do sleep 1 || :; done"""


def why_not() -> str:
    """Why there can be no such machines here; nothing if there can."""
    missing = [name for name in ("ip", "unshare", "nsenter", "setpriv") if not shutil.which(name)]
    if missing:
        return f"no {missing[0]} (iproute2, util-linux)"
    if os.geteuid():
        return "only root can make network namespaces"
    if Path(sys.prefix).is_relative_to("/tmp"):
        return "Python is installed in /tmp, which such machines do not see"
    tried = subprocess.run(["unshare", *_APART, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


_APART = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]


@dataclass(frozen=True)
class Host:
    """A machine.

    Attributes:
        name: also its host name.
        address: in the common network.
        first: its first process, by its number here; with it all others end.
        switch: the first process of the machine that it is plugged into.
        shared: the folder that all machines have, as it is called here; there it is /mnt/shared.
    """

    name: str
    address: str
    first: psutil.Process
    switch: psutil.Process
    shared: Path

    @property
    def disk(self) -> Path:
        """Its own folder, as it is called here; there it is /mnt/disk."""
        return Path(f"/proc/{self.first.pid}/root/mnt/disk")

    def start(self, *command: str, environment: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a command there, in /mnt/disk, which is no one else's; /mnt/shared is everybody's."""
        there = {"HOME": "/mnt/disk", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        variables = [f"{name}={value}" for name, value in (there | (environment or {})).items()]
        inside = ["nsenter", "--target", str(self.first.pid), "--all", "env", "-C", "/mnt/disk", *variables]
        return subprocess.Popen([*inside, *command], text=True, **options)

    def run(self, *command: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end, whatever that is."""
        pipe = subprocess.PIPE
        with self.start(*command, environment=environment, stdout=pipe, stderr=pipe) as process:
            out, errors = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, out, errors)

    def cut_off(self) -> None:
        """Pull the cable: no one is told."""
        _in_network(self.switch, "ip", "link", "set", self.name, "down")

    def lose(self) -> None:
        """Cut the power: no one is told, and all its processes end."""
        self.cut_off()
        self.first.kill()


def _in_network(switch: psutil.Process, *command: str) -> None:
    subprocess.run(["nsenter", "--target", str(switch.pid), "--net", *command], check=True)


@contextmanager
def hosts(folder: Path, *names: str) -> Iterator[list[Host]]:
    """Machines by their names, in one network; the first joins the others, so it should not be cut off.

    Args:
        folder: empty; what they share, as over a network, is ``shared`` in it.
        names: also what they call each other.
    """
    shared, table = folder / "shared", folder / "hosts"
    shared.mkdir()
    addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, start=1)}
    table.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    with ExitStack() as stack:
        made: list[Host] = []
        for name, address in addresses.items():
            first = stack.enter_context(_machine(name, shared, table))
            switch = made[0].first if made else first
            made.append(Host(name, address, first, switch, shared))
            if not made[1:]:
                _in_network(switch, "ip", "link", "add", "common", "type", "bridge")
                plug = "common"
            else:
                plug = "eth0"
                _in_network(switch, "ip", "link", "add", name, "type", "veth", "peer", plug, "netns", str(first.pid))
                _in_network(switch, "ip", "link", "set", name, "master", "common", "up")
            _in_network(first, "ip", "address", "add", f"{address}/24", "dev", plug)
            _in_network(first, "ip", "link", "set", plug, "up")
        yield made


@contextmanager
def _machine(name: str, shared: Path, table: Path) -> Iterator[psutil.Process]:
    """The first process of a machine without a network; it ends with this process, however that ends."""
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *_APART, "sh", "-c", _MACHINE, "sh", name, shared, table]
    with subprocess.Popen(list(map(str, command))) as outside:
        try:
            while not (first := psutil.Process(outside.pid).children()) or not _ready(first[0]):
                assert outside.poll() is None, "the machine did not start"
                time.sleep(0.01)
            yield first[0]
        finally:
            outside.kill()


def _ready(first: psutil.Process) -> bool:
    return Path(f"/proc/{first.pid}/root/mnt/ready").exists()
