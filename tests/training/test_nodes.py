"""Trainers on two nodes: agents with stand-ins for the processes, and real ones over gloo in a network namespace."""

import asyncio
import contextlib
import re
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("trl")
import stand_in_worker
import torch
from safetensors.torch import load_file
from steps import EXACT, random_rows, tiny

from building import make_config, make_job, policy_gradient, training_config
from evorun.errors import ConfigError, EvorunError, TrainingError
from evorun.models.config import ModelConfig
from evorun.models.devices import VISIBLE
from evorun.runs.journal import Journal
from evorun.runs.journal_file import JOURNAL
from evorun.training import node, process, tcp
from evorun.training.launching import Place
from evorun.training.layout import Share, lay_out
from evorun.training.node_wire import RENDEZVOUS
from evorun.training.nodes import launch_command
from evorun.training.policy import Policy
from evorun.training.process import LOG, TrainerProcess
from evorun.training.wire import Figures, Job, Train
from two_nodes import SecondNode, second_node

pytestmark = pytest.mark.slow

Adapter = dict[str, torch.Tensor]


class Started(NamedTuple):
    """A trainer on two nodes."""

    trainer: TrainerProcess
    connections: list[socket.socket]
    """Those of the agents."""
    ends: "list[asyncio.Task[int]]"
    """The exit codes that the agents return."""


# --- agents on this machine, whose processes have no model ---


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(job: Job, file: Path, place: Place) -> list[str]:
        return [sys.executable, stand_in_worker.__file__, str(file), str(place.rank)]

    monkeypatch.setattr(node, "command_line", command)


@contextlib.asynccontextmanager
async def started(folder: Path, trouble: str = "none", nodes: int = 2, **training: Any) -> AsyncIterator[Started]:
    """Start a trainer with a process on each of two nodes, so many of which join; close it."""
    settings = training_config(**{"num_processes": 2, "nodes": 2, "launch_command": "true", **training})
    job = make_job(folder, folder, settings, policy_gradient(), model=ModelConfig(name=trouble, id="none"))
    async with asyncio.timeout(100):
        starting = asyncio.create_task(TrainerProcess.start(job, folder / LOG))
        connections = [await asyncio.to_thread(node.join, folder / RENDEZVOUS) for _ in range(nodes)]
        ends = [asyncio.create_task(asyncio.to_thread(node.Agent(one).serve)) for one in connections]
        try:
            trainer = await starting
            try:
                yield Started(trainer, connections, ends)
            finally:
                await trainer.close()
        finally:
            await asyncio.gather(*ends)


@pytest.mark.usefixtures("stand_ins")
async def test_agents_join_a_run_and_end_with_it(tmp_path: Path) -> None:
    async with started(tmp_path) as (trainer, _, ends):
        assert stat.S_IMODE((tmp_path / RENDEZVOUS).stat().st_mode) == 0o600
        assert trainer.trainable == 7
        assert isinstance(await trainer.ask(Train(number=1)), Figures)
    assert [end.result() for end in ends] == [0, 0]
    assert not (tmp_path / RENDEZVOUS).exists()


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        pytest.param(
            "raises",
            r"failed on rank 1 of 2 on HOST: ValueError: no such layer \(at a.py:1 in f, in update 1\)",
            marks=pytest.mark.nightly,
        ),
        ("is killed", r"rank 1 of the trainer's 2 on HOST was killed by signal 9 \(SIGKILL\) in update 1, pass 1 of 1"),
        pytest.param(
            "hangs",
            r"no progress for 1 s .* of rank 1 of 2 on HOST in update 1, pass 1 of 1 \(at threading.py:\d+ in wait\)",
            marks=pytest.mark.nightly,
        ),
    ],
)
async def test_a_failure_on_the_other_node_is_shown(trouble: str, said: str, tmp_path: Path) -> None:
    said = said.replace("HOST", re.escape(socket.gethostname()))
    with pytest.raises(TrainingError, match=said):  # it may befall the node before the start is over
        async with started(tmp_path, trouble, hang_timeout=1.0 if trouble == "hangs" else None) as (trainer, _, _):
            await trainer.ask(Train(number=1))


@pytest.mark.usefixtures("stand_ins")
async def test_a_failure_before_the_first_rank_connects_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explain = TrainerProcess._broken

    async def broken(self: TrainerProcess) -> EvorunError:
        (tmp_path / "noticed").touch()  # the first rank connects now
        return await explain(self)

    monkeypatch.setattr(TrainerProcess, "_broken", broken)
    monkeypatch.setattr(process, "ENDING_S", 1000.0)  # longer than a trainer may take here
    with pytest.raises(TrainingError, match=r"rank 1 of the trainer's 2 on .* was killed by signal 9 \(SIGKILL\)"):
        async with started(tmp_path, "is killed first"):
            pass


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.nightly
async def test_a_node_that_is_cut_off_ends_the_run(tmp_path: Path) -> None:
    async with started(tmp_path, "waits") as (trainer, connections, _):
        asking = asyncio.create_task(trainer.ask(Train(number=1)))
        await asyncio.sleep(0)
        connections[1].shutdown(socket.SHUT_RDWR)
        with pytest.raises(TrainingError, match=r"^the trainer lost the node .* \(rank . of 2\): it was killed, "):
            await asking


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("nodes", "trouble", "settings", "said"),
    [
        (1, "none", {}, r"within 1 s \(training.start_timeout\): . of 2 nodes joined.*; see trainer.log$"),
        pytest.param(
            2,
            "never starts",
            {"start_timeout": 6.0},
            r"rank 1 of 2 on .+ (is reaching the other processes|has not begun); see ",
            marks=pytest.mark.nightly,
        ),
        (0, "none", {"launch_command": "sh -c 'echo no such node; exit 3' --"}, r"exit code 3, 0 of .*: no such node$"),
    ],
)
async def test_a_start_that_fails_is_one_line(
    nodes: int, trouble: str, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=said):
        async with started(tmp_path, trouble, nodes, **{"start_timeout": 1.0, **settings}):
            pass
    assert not (tmp_path / RENDEZVOUS).exists()


async def test_a_connection_without_the_secret_is_refused() -> None:
    accepted = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(await reader.readexactly(2))
        writer.close()

    server = await tcp.listen("right", accept)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionError, match="another secret"):
        await asyncio.to_thread(tcp.connect, "127.0.0.1", port, "wrong")
    connection = await asyncio.to_thread(tcp.connect, "127.0.0.1", port, "right")
    connection.sendall(b"me")
    assert await asyncio.to_thread(connection.recv, 1) == b""
    connection.close()
    assert accepted == [b"me"]
    server.close()


async def test_a_node_does_not_trust_whoever_listens_at_the_address_of_its_run() -> None:
    """One that does not know the secret accepts any proof, and has to make one up."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(tcp.CHALLENGE))
        proof = (await reader.readexactly(2 * tcp.CHALLENGE))[tcp.CHALLENGE :]
        writer.write(proof)
        await writer.drain()

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    with pytest.raises(ConnectionError, match="does not know the run's secret"):
        await asyncio.to_thread(tcp.connect, "127.0.0.1", server.sockets[0].getsockname()[1], "right")
    server.close()


# --- shares and commands ---


@pytest.mark.parametrize(
    ("allocated", "gpus", "settings", "expected"),
    [
        ("", "", {}, [(0, 1, None)]),
        ("", "", {"num_processes": 3, "nodes": 2}, [(0, 2, None), (1, 1, None)]),
        ("", "", {"nodes": 2}, [(0, 1, None), (1, 1, None)]),
        ("a,b", "", {}, [(0, 1, None)]),
        ("a,b", "", {"num_processes": 2}, [(0, 1, None), (1, 1, None)]),
        ("a,b", "", {"num_processes": 2, "nodes": 1}, [(0, 2, None)]),
        ("a,b", "0,1,2,3", {"devices": [2, 3, 4, 7]}, [(0, 2, (2, 3)), (1, 2, (0, 3))]),
        ("a,b", "0,1,2,3", {"devices": [4, 5]}, [(1, 2, (0, 1))]),
        ("a,b", "0,1,2,3", {"devices": [8]}, "training.devices: expected GPUs 0 to 7 of 2 nodes with 4 each, got 8"),
        ("a,b", "", {"nodes": 3}, "training.nodes: expected at most the 2 nodes of the SLURM job, got 3"),
        ("", "", {"nodes": 3, "num_processes": 2}, r"training.nodes: expected at most training.num_processes \(2\)"),
    ],
)
def test_the_shares_of_nodes(
    allocated: str, gpus: str, settings: dict[str, Any], expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evorun.training.layout.allocated_nodes", lambda: list(filter(None, allocated.split(","))))
    monkeypatch.setenv(VISIBLE, gpus)
    training = training_config(**settings)
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            lay_out(training)
    else:
        assert lay_out(training) == [Share(*share) for share in expected]


def test_what_starts_the_agents(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    agent = [sys.executable, "-m", "evorun.training.node", "/shared/run"]
    both = [Share(0, 1, None), Share(1, 1, None)]

    def command(layout: list[Share], **settings: Any) -> list[str] | None:
        return launch_command(training_config(**settings), layout, Path("/shared/run"))

    assert command(both, launch_command="mpirun -npernode 1 -x 'A=b c'") == [
        *("mpirun", "-npernode", "1", "-x", "A=b c"),
        *agent,
    ]
    assert command(both) == agent
    assert caplog.messages[-1].endswith(f"1 other node, which must see this folder: {' '.join(agent)}")
    assert command(both[1:]) is None
    monkeypatch.setattr("evorun.training.nodes.allocated_nodes", lambda: ["a", "b", "c"])
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")
    words = command([Share(0, 1, None), Share(2, 4, None)])
    assert words is not None
    assert words[:5] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=a,c"]
    assert words[-5:] == ["--cpus-per-task=6", *agent]


# --- real processes ---


@pytest.fixture(scope="module")
def other() -> Iterator[SecondNode]:
    with second_node() as node:
        yield node


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    weights, tokenizer = tiny()
    tokenizer.chat_template = "{{ messages[0].content }}"
    for part in (weights, tokenizer):
        part.save_pretrained(folder)
    return folder


def make_policy(folder: Path, model: Path, journal: Journal, **changes: Any) -> Policy:
    return Policy(
        model=ModelConfig(name="tiny", id=str(model), context_length=256),
        engine=make_config("engine", "transformers", device="cpu"),
        training=training_config(**{**EXACT, "learning_rate": 0.1, "save_every": 1, **changes}),
        objective=policy_gradient(steps=3),
        seed=3,
        run=folder,
        journal=journal,
    )


async def trained(folder: Path, model: Path, *, kills: SecondNode | None = None, **changes: Any) -> Adapter:
    """Make two updates, those that are recorded too; return the adapter. kills: a node that dies in the second one."""
    journal = Journal(folder / JOURNAL)
    policy = make_policy(folder, model, journal, **changes)
    try:
        await policy.update(1, random_rows(7, seed=1))
        if kills is not None:
            kills.send_signal(signal.SIGSTOP)  # so that the update cannot end before
        update = asyncio.create_task(policy.update(2, random_rows(7, seed=2)))
        if kills is not None:
            await asyncio.sleep(1)
            kills.send_signal(signal.SIGKILL)
        await update
        return load_file((await policy.export()) / "adapter_model.safetensors")
    finally:
        await policy.close()
        journal.close()


@pytest.mark.nightly
async def test_two_nodes_train_as_one_process_and_go_on_after_the_loss_of_one(
    other: SecondNode, model: Path, tmp_path: Path
) -> None:
    on_both = {"num_processes": 3, "nodes": 2, "launch_command": other.launch_command}
    for name in ("one", "two", "killed"):
        (tmp_path / name).mkdir()
    one = await trained(tmp_path / "one", model)
    two = await trained(tmp_path / "two", model, **on_both)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)
    assert other.pids() == []
    logs = {"trainer.log", *(f"trainer.{part}.log" for part in ("node0", "node1", "rank0", "rank1", "rank2"))}
    assert {path.name for path in (tmp_path / "two").glob("trainer*")} == logs
    said = rf"^the trainer lost the node {other.name} \(rank 2 of 3\): it was killed, or cut off from the run's machine"
    with pytest.raises(TrainingError, match=said) as lost:
        await trained(tmp_path / "killed", model, kills=other, **on_both)
    assert "\n" not in str(lost.value)
    resumed = await trained(tmp_path / "killed", model, **on_both)
    for name, value in two.items():  # gloo adds up three processes' gradients in another order after a start
        torch.testing.assert_close(resumed[name], value, rtol=1e-5, atol=1e-6)
