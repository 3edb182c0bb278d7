"""TCP connections between a run and the nodes of its trainer; each end proves that it knows the run's secret.

The proof is an HMAC of both ends' challenges (RFC 2104), so the secret never crosses the network. What follows is not
encrypted, like the traffic of NCCL and gloo between the nodes.
"""

import asyncio
import contextlib
import hmac
import secrets
import socket
from collections.abc import Awaitable, Callable

CHALLENGE = 32
"""Bytes of a challenge, and of a proof."""

PROOF_S = 10.0
"""Seconds for the other end to connect and to prove itself. `ours`."""

_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 40_000}
"""A node that is cut off or switched off is noticed after 40 seconds (`ours`); the system's default is two hours."""


def find_free_port() -> int:
    """Return the number of a port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


async def listen(
    secret: str, accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> asyncio.Server:
    """Listen at a free port of all interfaces; call `accept` with each connection whose other end knows the secret."""

    async def prove(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(PROOF_S):
                own = secrets.token_bytes(CHALLENGE)
                writer.write(own)
                theirs, proof = await reader.readexactly(CHALLENGE), await reader.readexactly(CHALLENGE)
                known = hmac.compare_digest(proof, _prove(secret, b"node", own, theirs))
                if known:
                    writer.write(_prove(secret, b"run", own, theirs))
                    await writer.drain()
            if known:
                keep_alive(writer.get_extra_info("socket"))
                await accept(reader, writer)
                return
        writer.close()

    return await asyncio.start_server(prove, "0.0.0.0", 0)  # noqa: S104 - nodes connect, and prove themselves


def connect(address: str, port: int, secret: str) -> socket.socket:
    """Connect to a run. Raises OSError if it does not answer, ConnectionError if it does not know the secret."""
    connection = socket.create_connection((address, port), timeout=PROOF_S)
    try:
        theirs, own = _read(connection), secrets.token_bytes(CHALLENGE)
        connection.sendall(own + _prove(secret, b"node", theirs, own))
        if not hmac.compare_digest(_read(connection), _prove(secret, b"run", theirs, own)):
            raise ConnectionError(f"{address}:{port} does not know the run's secret")
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    keep_alive(connection)
    return connection


def keep_alive(connection: socket.socket) -> None:
    """Let a connection break when the other end's machine is gone, not only when the other end closes it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # of Linux
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def own_addresses() -> list[str]:
    """Return this machine's IPv4 addresses, without those that other machines cannot reach unless there is no other."""
    import psutil

    found = [
        entry.address
        for name, entries in psutil.net_if_addrs().items()
        if psutil.net_if_stats()[name].isup
        for entry in entries
        if entry.family == socket.AF_INET
    ]
    return [address for address in found if not address.startswith("127.")] or found


def find_interface(address: str) -> str | None:
    """Return the network interface that has an address of this machine; None if none has."""
    import psutil

    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return str(name)
    return None


def _read(connection: socket.socket) -> bytes:
    """Return a challenge or a proof. Raises ConnectionError when the connection ends before."""
    read = b""
    while len(read) < CHALLENGE:
        part = connection.recv(CHALLENGE - len(read))
        if not part:
            raise ConnectionError("the run closed the connection: it has another secret, or has ended")
        read += part
    return read


def _prove(secret: str, end: bytes, of_run: bytes, of_node: bytes) -> bytes:
    return hmac.digest(secret.encode(), end + of_run + of_node, "sha256")
