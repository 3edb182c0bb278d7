"""A second node for tests: a network namespace of this machine, with a name and an address of its own."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest


class SecondNode(NamedTuple):
    """A namespace that reaches this machine through a pair of virtual devices."""

    name: str
    """Of the namespace, and its host name."""
    device: str
    """This machine's end."""
    address: str
    own_address: str
    """This machine's, at that end."""

    @property
    def inside(self) -> list[str]:
        """The command before one that runs on the node."""
        named = f'hostname {self.name}; exec "$@"'
        return ["nsenter", f"--net=/run/netns/{self.name}", "unshare", "--uts", "sh", "-c", named, "--"]

    @property
    def launch_command(self) -> str:
        """Starts a command on both nodes (`training.launch_command`)."""
        return shlex.join(["sh", "-c", f'{shlex.join(self.inside)} "$@" & "$@"; wait', "--"])

    def pids(self) -> list[int]:
        """Return the processes of the node."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True)
        return [int(pid) for pid in listed.stdout.split()]

    def send_signal(self, number: int) -> None:
        """Send a signal to all processes of the node."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@contextlib.contextmanager
def second_node() -> Iterator[SecondNode]:
    """Make a second node; skip the test where that needs other rights."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2, to make a network namespace")
    number = os.getpid() % 65536
    network, low = f"10.{213 + number % 8}.{number >> 8}", (number & 0x3F) * 4
    node = SecondNode(f"node{number}", f"ev{number}a", f"{network}.{low + 2}", f"{network}.{low + 1}")
    steps = [
        f"netns add {node.name}",
        f"link add {node.device} type veth peer name ev{number}b netns {node.name}",
        f"addr add {node.own_address}/30 dev {node.device}",
        f"link set {node.device} up",
        f"-n {node.name} addr add {node.address}/30 dev ev{number}b",
        f"-n {node.name} link set ev{number}b up",
        f"-n {node.name} link set lo up",
    ]
    try:
        for step in steps:
            done = subprocess.run(["ip", *step.split()], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
        yield node
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            node.send_signal(signal.SIGKILL)
        for step in (f"link del {node.device}", f"netns del {node.name}"):
            subprocess.run(["ip", *step.split()], capture_output=True, check=False)
