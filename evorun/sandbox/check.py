"""A trial program that looks for a way out of the sandbox: an isolation that leaks is not used."""

import msgspec

from evorun.sandbox.base import Limits, Program
from evorun.sandbox.zygotes import Zygote

_LIMITS = Limits(cpu_seconds=5.0, memory_mib=512, wall_seconds=20.0)

# Isolation depends on the kernel, its settings, the container around us and bubblewrap's version: it is tried, not
# inferred. 192.0.2.1 is reserved for documentation (RFC 5737): connecting a UDP socket only looks for a route, nothing
# is sent. 0x10000000 is CLONE_NEWUSER: a user namespace of its own would give the program every privilege in it.
_LOOK = """
import os, socket

def look(outside):
    return [name for name, leaks in LEAKS.items() if leaks(outside)]

def writable(path):
    try:
        os.mkdir(path + "/evorun-trial")
    except OSError:
        return False
    return True

def reaches_network():
    if any(name != "lo" for _, name in socket.if_nameindex()):
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
        except OSError:
            return False
    return True

def becomes_root():
    try:
        os.unshare(0x10000000) if hasattr(os, "unshare") else os.setuid(0)
    except OSError:
        return False
    return True

LEAKS = {
    "it sees the host's files": lambda outside: any(map(os.path.exists, outside)),
    "it sees environment variables": lambda outside: bool(os.environ),
    "it sees the host's processes": lambda outside: os.getpid() != 1 or os.getppid() != 0,
    "it reaches the network": lambda outside: reaches_network(),
    "it gets privileges": lambda outside: becomes_root(),
    "it writes outside its scratch folder": lambda outside: any(map(writable, ["/", "/usr", "/dev", "/proc", "/var"])),
    "it cannot write into its scratch folder": lambda outside: not writable(os.getcwd()),
}
"""
_TRIVIAL = "def look(outside):\n    return []\n"


async def find_breach(zygote: Zygote, full: bool) -> str:
    """Return a zygote's leaks in words, or an empty text.

    full: look for leaks; without, only run a trivial program. Raises ZygoteLost.
    """
    outside = ["/etc/passwd", "/home", __file__]
    program = Program(_LOOK if full else _TRIVIAL, entry="look")
    execution = await zygote.run(program, msgspec.json.encode(outside).decode(), _LIMITS)
    if execution.value is None:
        return f"a trial program ended with {execution.end}: {execution.stderr.strip()[-200:]}"
    return "; ".join(msgspec.json.decode(execution.value, type=list[str]))
