"""The run's side of a trainer on several nodes: starts an agent on each, and gives each its share of the processes.

Agents (`evorun.training.node`) connect to the run, whose address and secret lie in the run directory. An agent whose
connection ends is gone, with its node or without.
"""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from evorun.errors import EvorunError
from evorun.models.keys import child_environment
from evorun.runs.slurm import allocated_nodes
from evorun.training.config import TrainingConfig
from evorun.training.failures import Evidence
from evorun.training.launching import HUB_VARIABLES, open_log
from evorun.training.layout import Share
from evorun.training.node_wire import (
    RENDEZVOUS,
    Begin,
    Ended,
    Gather,
    Gathered,
    Joined,
    Rendezvous,
    decode_report,
    write_rendezvous,
)
from evorun.training.ranks import log_of_node
from evorun.training.tcp import listen, own_addresses
from evorun.training.wire import LENGTH, Job, frame

log = logging.getLogger("evorun")

AGENT = "evorun.training.node"

ENDING_S = 45.0
"""Seconds for agents to end their processes, by force if they must, and themselves. `ours`."""

GATHER_S = 30.0
"""Seconds for a node to send the files about its ranks; a hanging rank takes seconds to say where it is. `ours`."""


class Node:
    """An agent, as the run sees it."""

    def __init__(self, joined: Joined, writer: asyncio.StreamWriter) -> None:
        self.host = joined.host
        self.port = joined.port
        self.writer = writer
        self.address: str = writer.get_extra_info("peername")[0]
        self.of_run: str = writer.get_extra_info("sockname")[0]
        """The run's address, as the node sees it."""
        self.code: int | None = None
        """Exit code of its launcher; None while that runs."""
        self.gone = False
        """True once its connection has ended."""
        self.files: asyncio.Future[dict[str, bytes]] = asyncio.get_running_loop().create_future()
        """The files that it is asked for."""

    @property
    def is_own(self) -> bool:
        """True if it is the run's own machine."""
        return self.address == self.of_run


class Nodes:
    """The nodes of a trainer; implements `evorun.training.process.Launched`."""

    def __init__(self, layout: Sequence[Share], folder: Path, evidence: Evidence) -> None:
        """folder: where the files about all ranks are gathered, for `evidence`."""
        self._layout = layout
        self._folder = folder
        self._evidence = evidence
        self._nodes: list[Node] = []
        """Those that have joined; once all have, by their numbers."""
        self._begun = False
        """True once the nodes have their shares."""
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._launcher: asyncio.subprocess.Process | None = None
        self._rendezvous: Path | None = None

    async def start(self, job: Job, link_port: int) -> None:
        """Start the agents and, when all have joined, the processes. Raises TrainingError if what starts them fails."""
        log_file = Path(job.log)
        self._rendezvous = log_file.parent / RENDEZVOUS
        self._server = await listen(job.secret, self._serve)
        port = int(self._server.sockets[0].getsockname()[1])
        write_rendezvous(self._rendezvous, Rendezvous(addresses=own_addresses(), port=port, secret=job.secret))
        if (command := launch_command(job.training, self._layout, log_file.parent)) is not None:
            with open_log(job) as output:
                self._launcher = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=child_environment(keep=HUB_VARIABLES),
                    start_new_session=True,
                )
        await self._until_joined()
        self._nodes = order_nodes(self._nodes, allocated_nodes())
        self._begun = True
        self._evidence.name_nodes(
            [node.host for share, node in zip(self._layout, self._nodes, strict=True) for _ in range(share.processes)]
        )
        first, others = self._nodes[0], self._nodes[1:]
        # Of the addresses of the run's own machine, the others reach that at which they have reached the run.
        address = others[0].of_run if first.is_own and others else first.address
        for rank, (share, node) in enumerate(zip(self._layout, self._nodes, strict=True)):
            begin = Begin(
                job=msgspec.structs.replace(job, socket=f"{node.of_run}:{link_port}"),
                rank=rank,
                nodes=len(self._nodes),
                processes=share.processes,
                devices=share.devices,
                address=address,
                port=first.port,
                log=str(log_of_node(log_file, rank)),
            )
            node.writer.write(frame(begin))

    async def ended(self) -> None:
        """Return when a node is gone, or its processes have ended otherwise than in order."""
        await self._until(lambda: any(node.gone or node.code for node in self._nodes))

    async def wait(self) -> int:
        """Return when nothing is known to run any more: the exit code of a launcher that is not 0, else 0."""
        await self._until(lambda: all(node.gone or node.code is not None for node in self._nodes))
        return next((node.code for node in self._nodes if node.code), 0)

    async def gather(self, *, stacks: bool = False) -> None:
        """Bring the files about the ranks of all nodes here. stacks: also where each rank is."""
        asked = [node for node in self._nodes if not node.gone]
        for node in asked:
            node.files = asyncio.get_running_loop().create_future()
            node.writer.write(frame(Gather(stacks=stacks)))
        answered = (await asyncio.wait([node.files for node in asked], timeout=GATHER_S))[0] if asked else ()
        for files in answered:
            for name, content in files.result().items():
                (self._folder / Path(name).name).write_bytes(content)

    def describe_joined(self) -> str:
        """Say which nodes have joined: `1 of 2 nodes joined (node1)`."""
        names = ", ".join(node.host for node in self._nodes)
        return f"{len(self._nodes)} of {len(self._layout)} nodes joined{names and f' ({names})'}"

    def explain_loss(self) -> EvorunError | None:
        """Return the error for a node that is gone; None if all are there."""
        first = 0
        for number, (share, node) in enumerate(zip(self._layout, self._nodes, strict=False)):
            if node.gone:
                return self._evidence.explain_loss(number, node.host, range(first, first + share.processes))
            first += share.processes
        return None

    async def close(self, patience_s: float) -> None:
        """End all processes; agents end theirs when their connections end."""
        if patience_s and self._begun:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), patience_s)
        for node in self._nodes:
            node.writer.close()
        if self._rendezvous is not None:
            self._rendezvous.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()
        if self._launcher is not None:
            try:
                await asyncio.wait_for(self._launcher.wait(), ENDING_S if self._begun else 0)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._launcher.pid, signal.SIGTERM)
                await self._launcher.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Listen to an agent until its connection ends."""
        node: Node | None = None
        try:
            while node is None or not node.gone:
                size = int(LENGTH.unpack(await reader.readexactly(LENGTH.size))[0])
                report = decode_report(await reader.readexactly(size))
                if node is None:
                    if not isinstance(report, Joined) or len(self._nodes) == len(self._layout):
                        break  # of a node too many
                    node = Node(report, writer)
                    self._nodes.append(node)
                elif isinstance(report, Ended):
                    node.code = report.code
                elif isinstance(report, Gathered) and not node.files.done():
                    node.files.set_result(report.files)
                await self._tell()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            if node is not None:
                node.gone = True
                if not self._begun:
                    self._nodes.remove(node)
                if not node.files.done():
                    node.files.set_result({})
                await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(reached)

    async def _until_joined(self) -> None:
        """Wait for all agents. Raises TrainingError if what starts them fails."""
        joined = asyncio.create_task(self._until(lambda: len(self._nodes) == len(self._layout)))
        launched = None if self._launcher is None else asyncio.create_task(self._launcher.wait())
        try:
            await asyncio.wait({joined, launched or joined}, return_when=asyncio.FIRST_COMPLETED)
            if not joined.done() and launched is not None and launched.result() != 0:
                raise self._evidence.explain_launch(launched.result(), self.describe_joined())
            await joined  # a launcher may end as soon as it has started the agents
        finally:
            for task in filter(None, (joined, launched)):
                task.cancel()


def launch_command(training: TrainingConfig, layout: Sequence[Share], folder: Path) -> list[str] | None:
    """Return the command that starts the agents; None if they are all started by hand.

    Where neither SLURM nor the user's `launch_command` starts them, the command starts that of the run's own machine,
    and a warning says how to start the others.
    """
    agent = [sys.executable, "-m", AGENT, str(folder)]
    if training.launch_command is not None:
        return [*shlex.split(training.launch_command), *agent]
    if names := allocated_nodes():
        count, cpus = len(layout), os.environ.get("SLURM_CPUS_PER_TASK")
        return [
            *("srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"),
            f"--nodelist={','.join(names[share.node] for share in layout)}",
            # All that the job has on each node, whatever other steps run there.
            *("--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0"),
            *([f"--cpus-per-task={cpus}"] if cpus else []),
            *agent,
        ]
    own = layout[0].node == 0
    others = len(layout) - own
    log.warning(
        "start the trainer on %d other node%s, which must see this folder: %s",
        others,
        "s" * (others > 1),
        shlex.join(agent),
    )
    return agent if own else None


def order_nodes(nodes: Sequence[Node], allocated: Sequence[str]) -> list[Node]:
    """Return nodes in the order of a SLURM job's; outside one, the run's own first, then as they have joined."""
    if all(node.host in allocated for node in nodes):
        return sorted(nodes, key=lambda node: allocated.index(node.host))
    return sorted(nodes, key=lambda node: not node.is_own)
