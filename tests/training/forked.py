"""Steps in forks of one process, which has imported what takes long to: several at once over gloo, and killed ones.

`python forked.py FOLDER COUNT...` leaves in it what steps of each objective come to in one process and in so many
(`OBJECTIVE-PROCESSES.pt`; those of PPO and of all weights in two). It also leaves the checkpoints of a trainer of PPO
that ran through (`through`) and of one that was killed again and again (`killed`), with the exports of both.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from steps import EXACT, Stepped, random_rows, stepped, tiny
from test_proximal_steps import SLOWLY, make_trainer, watched

from building import make_job, proximal_policy, training_config
from evorun.models.config import ModelConfig
from evorun.training.checkpoints import Checkpoints
from evorun.training.critic import CRITIC, Critic
from evorun.training.proximal_policy import ProximalTrainer
from evorun.training.rollouts import Decoding
from evorun.training.serving import Finished, Serving
from evorun.training.versions import Versions
from evorun.training.wire import Answer, Command, Export, Figures, Finish, Save, Train

AS_RELEASED = {**SLOWLY, "target_modules": ["all-linear", "lm_head"], "schedule": "linear", "schedule_by": "batch"}
"""The settings of MPO's released code, at a learning rate of its own."""

MOMENTS = ("value update", "critic written", "checkpoint written")
LAST = 4
"""Updates of a trainer that is killed; after each second one there is a checkpoint."""


def forked(work: Callable[[], None], environment: Mapping[str, str] | None = None) -> int:
    """Do some work in a fork of this process; return the fork's id."""
    if not (child := os.fork()):
        torch.set_num_threads(1)  # OpenMP would wait for the parent's threads, which no fork has
        os.environ |= {"OMP_NUM_THREADS": "1", **(environment or {})}  # else accelerate would take more threads again
        work()
        os._exit(0)
    return child


def in_processes(count: int, learn: Callable[[], Stepped], file: Path) -> None:
    """Learn in so many processes over gloo; the first one saves what it saw."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(one.getsockname()[1])}

    def work() -> None:
        result = learn()
        if os.environ["RANK"] == "0":
            torch.save(tuple(result), file)

    children = [forked(work, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(count)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * count


class Commands:
    """In the place of a run at the other end of the socket: its commands from the newest checkpoint on."""

    def __init__(self, folder: Path, kill: str | None) -> None:
        self._kill = kill
        self._checkpoints = Checkpoints(folder / "checkpoints", keep=2)
        self.resumed = max(self._checkpoints.saved_updates(), default=0)
        self.checkpoint = str(self._checkpoints.path(self.resumed)) if self.resumed else None
        self.updates = self.resumed
        self._left: list[Command] = []
        for number in range(self.resumed + 1, LAST + 1):
            self._left.append(Train(number=number, rows=tuple(random_rows(5, seed=number))))
            if number % 2 == 0:
                self._left.append(Save(str(folder / "checkpoints" / "unfinished")))
        self._left += [Export(str(folder / "adapter"), "tiny", LAST), Finish()]
        self._last: Command | None = None

    def receive(self) -> Command:
        self._last = self._left.pop(0)
        if isinstance(self._last, Save):
            self._checkpoints.begin()
        return self._last

    def send(self, answer: Answer) -> None:
        self.updates += isinstance(answer, Figures)
        if isinstance(self._last, Save):
            if self._kill == "checkpoint written":
                die()
            self._checkpoints.seal(self.updates)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, kill: str | None = None) -> None:
    """Carry out a run's commands, from the newest checkpoint on, until this process is killed or they end."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    commands = Commands(folder, kill)
    losses = 0
    compute_loss, save = ProximalTrainer.compute_loss, Critic.save

    def dying_loss(self: Any, *given: Any, **named: Any) -> Any:
        nonlocal losses
        losses += commands.updates == 2
        if losses == 2:  # in the second epoch of the third update
            die()
        return compute_loss(self, *given, **named)

    def dying_save(self: Any, folder: Path) -> None:
        save(self, folder)
        written = (folder / CRITIC).read_bytes()
        (folder / CRITIC).write_bytes(written[: len(written) // 2])
        die()

    told = proximal_policy(steps=LAST, epochs=2, critic="full")
    training = training_config(**{**EXACT, **AS_RELEASED})
    job = make_job(folder, folder / "checkpoints", training, told, checkpoint=commands.checkpoint)
    model, tokenizer = tiny()
    decoding = Decoding(tokenizer, ModelConfig(name="tiny", id="tiny"), 8, 1024)
    serving = Serving(commands, decoding, Versions.resumed(commands.resumed, commands.checkpoint))  # type: ignore[arg-type]
    trainer = ProximalTrainer(job, told, model, tokenizer, serving)
    serving.bind(trainer)
    with contextlib.ExitStack() as patches:
        if kill == "value update":
            patches.enter_context(mock.patch.object(ProximalTrainer, "compute_loss", dying_loss))
        if kill == "critic written":
            patches.enter_context(mock.patch.object(Critic, "save", dying_save))
        patches.enter_context(contextlib.suppress(Finished))
        trainer.train(resume_from_checkpoint=commands.checkpoint)
        serving.next_training()


def main(folder: Path, counts: Sequence[int]) -> None:
    """Leave the results in a folder, those of a policy gradient in these numbers of processes."""
    from accelerate.state import AcceleratorState

    batches = [random_rows(20, tools=True), random_rows(50, seed=1)]
    of_ppo = [random_rows(9, tools=True), random_rows(4, seed=1)]

    def proximal() -> Stepped:
        return watched(make_trainer(folder, of_ppo, training=AS_RELEASED, critic="full", epochs=2, minibatches=2))

    def full() -> Stepped:
        return stepped(folder, *of_ppo, training={"weights": "full", **SLOWLY}, kl=0.1)

    def full_alone() -> None:
        tiny()[0].save_pretrained(folder)  # the reference policy
        torch.save(tuple(full()), folder / "full-1.pt")

    objectives = {"policy_gradient": lambda: stepped(folder, *batches), "ppo": proximal}
    for name, learn in objectives.items():  # in this process: all is imported before it forks
        torch.save(tuple(learn()), folder / f"{name}-1.pt")
    AcceleratorState._reset_state(reset_partial_state=True)
    for count in counts:
        in_processes(count, objectives["policy_gradient"], folder / f"policy_gradient-{count}.pt")
    in_processes(2, proximal, folder / "ppo-2.pt")
    # In a fork: to load a model starts threads, and forks of a process with threads may hang.
    assert os.waitpid(forked(full_alone), 0)[1] == 0
    in_processes(2, full, folder / "full-2.pt")

    assert os.waitpid(forked(lambda: train(folder / "through")), 0)[1] == 0
    for moment in MOMENTS:
        child = forked(lambda moment=moment: train(folder / "killed", moment))  # type: ignore[misc]
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, moment
    assert os.waitpid(forked(lambda: train(folder / "killed")), 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(count) for count in sys.argv[2:]])
