"""The policy that a run trains, as its method sees it: completions from its present weights, and updates of them.

Each update is an effect in the run's journal, known by its number and by all that it learns from. So a method writes no
resume code: a resumed run repeats its steps from the journal, in which an update up to the newest checkpoint is only
looked up, and one after it is made again, from the recorded completions and rewards. The method's own state and the
position in the data follow from the repetition.

The trainer process starts when something is first asked of it that neither journal nor checkpoint answers.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import msgspec

from evorun.errors import JournalError, RunDirectoryError, TrainingError
from evorun.models.base import LanguageModel, Reply, Request, TakesAdapters
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve
from evorun.models.transformers.engine import TransformersConfig
from evorun.runs.journal import Effect, Journal
from evorun.runs.records import write_json
from evorun.training.checkpoints import ROLLOUTS, Checkpoints
from evorun.training.config import TrainingConfig
from evorun.training.process import LOG, TrainerProcess
from evorun.training.settings import micro_batch, require_share
from evorun.training.wire import (
    Answer,
    Assess,
    Command,
    Export,
    Figures,
    FineTuning,
    Generate,
    Job,
    PolicyGradient,
    Replies,
    Row,
    Save,
    Train,
    encode,
)

log = logging.getLogger("evorun")

CHECKPOINTS = "checkpoints"
ADAPTER = "adapter"
"""What has been trained, in artifacts/: a LoRA adapter in PEFT's format."""
WHOLE = "model"
"""The same where all weights were trained: a model's folder."""
MADE_BY = "evorun.json"
"""Written last into what is exported: of which run, after how many updates."""

AT_ONCE = 4
"""Requests given to the trainer at once, in units of its largest batch: what a killed process loses (ours)."""

FIGURES = msgspec.json.Decoder(dict[str, float])


class Past(Protocol):
    """A recorded run's updates, where one is repeated without its model."""

    def get(self, key: str, digest: bytes) -> bytes | None:
        """Return what was recorded under the key; None when nothing was."""
        ...


class Policy:
    """A base model and what is trained of it. Belongs to one event loop."""

    def __init__(
        self,
        *,
        model: ModelConfig,
        engine: TransformersConfig,
        training: TrainingConfig,
        objective: PolicyGradient | FineTuning,
        seed: int,
        run: Path,
        journal: Journal,
        past: Past | None = None,
    ) -> None:
        """engine: how the trainer decodes. run: the run directory. past: makes updates known without a trainer.

        Raises ConfigError when a batch cannot be divided among the trainer's processes.
        """
        if isinstance(objective, PolicyGradient):
            micro_batch(objective.rows, training.num_processes, objective.minibatches, training.micro_batch)
        else:
            require_share(objective.batch, training.num_processes)
        self.training = training
        self.updates = 0
        """Updates so far."""
        self.current: LanguageModel = _Served(self, model.id, adapter=True)
        """Completions from the present weights; its name tells how many updates have made them."""
        self.reference: LanguageModel = _Served(self, model.id, adapter=False)
        """Completions with the adapter off."""
        self._model = model
        self._engine = engine
        self._objective = objective
        self._seed = seed
        self._run = run
        self._journal = journal
        self._past = past
        self._checkpoints = Checkpoints(run / CHECKPOINTS, training.keep)
        known = [number for number in self._checkpoints.numbers() if _key(number) in journal]
        self._resumed = 0 if past is not None else max(known, default=0)
        """The update whose checkpoint the trainer starts from."""
        self._process: TrainerProcess | None = None
        self._starting = asyncio.Lock()
        self._waiting: dict[bool, list[tuple[Request, asyncio.Future[Reply]]]] = {True: [], False: []}
        self._pump: asyncio.Task[None] | None = None

    def serve_via(self, base: TakesAdapters) -> LanguageModel:
        """Return the present weights' completions as another engine gives them, which is told of each update."""
        return _Synchronised(self, base, self._model.id)

    async def update(self, rows: Sequence[Row]) -> dict[str, float]:
        """Learn from a batch of completions; return what TRL measured. Raises TrainingError or RunDirectoryError."""
        return await self._learn(Train(number=self.updates + 1, rows=tuple(rows)))

    async def train_step(self) -> dict[str, float]:
        """Make a step on the data of a fine-tuning; return what TRL measured."""
        return await self._learn(Train(number=self.updates + 1))

    async def evaluate(self) -> dict[str, float]:
        """Return what a fine-tuning's data are, and the loss on those held out (`fine_tuning.FineTuner.assess`)."""
        key, digest = f"*|{self.updates}|assess|0|0", _digest(Assess())
        recorded = self._recorded(key, digest)
        return await self._carry_out(key, digest, Assess(), None) if recorded is None else recorded

    async def export(self) -> Path:
        """Leave what has been trained in artifacts/; return its folder.

        Raises RunDirectoryError when it cannot be written.
        """
        folder = self._run / "artifacts" / (ADAPTER if self.training.weights == "lora" else WHOLE)
        made_by = {"model": self._model.id, "updates": self.updates, "seed": self._seed}
        if self._past is None and not _is_made_by(folder, made_by):
            if self.updates > self._resumed:
                await self._save()
            await self._write(Export(str(folder), self._model.id), folder)
            write_json(folder / MADE_BY, made_by)
        return folder

    async def close(self) -> None:
        """End the trainer process; idempotent."""
        if self._pump is not None:
            self._pump.cancel()
        if self._process is not None:
            await self._process.close()
            self._process = None
        self._checkpoints.remove_rollouts()

    # --- updates ---

    async def _learn(self, train: Train) -> dict[str, float]:
        key, digest = _key(train.number), _digest(train)
        figures = self._recorded(key, digest)
        if figures is None or not self._holds(train.number):
            figures = await self._carry_out(key, digest, train, figures)
        self.updates = train.number
        if train.number % self.training.save_every == 0 and not self._holds(train.number):
            await self._save()
        return figures

    def _holds(self, update: int) -> bool:
        """Whether the weights after an update are to be had, or not needed, without making it."""
        return self._past is not None or update <= self._resumed

    def _recorded(self, key: str, digest: bytes) -> dict[str, float] | None:
        found = self._journal.get(key, digest)
        if found is None and self._past is not None:
            found = self._past.get(key, digest)
        return None if found is None else FIGURES.decode(found)

    async def _carry_out(
        self, key: str, digest: bytes, command: Command, recorded: dict[str, float] | None
    ) -> dict[str, float]:
        """Let the trainer do it; return what it measured, or what it measured when it was first done.

        Raises JournalError in a replayed run, which trains nothing.
        """
        if self._past is not None:
            raise JournalError(
                f"{self._run}: the recorded run holds no {key}: it had not come so far, or learned from something else"
            )
        started = time.perf_counter()
        answer = await self._ask(command)
        figures = answer.figures if isinstance(answer, Figures) else {}
        if recorded is not None:
            if figures != recorded:
                log.warning("%s, made again, gives other figures than recorded: %s, not %s", key, figures, recorded)
            return recorded
        request = msgspec.json.encode({"model": self.current.name, "digest": digest.hex()})
        seconds = time.perf_counter() - started
        await self._journal.put(Effect(key, digest, request, msgspec.json.encode(figures), None, seconds))
        return figures

    async def _save(self) -> None:
        """Write a checkpoint; what a full disk has cut short does not count as one."""
        unfinished = self._checkpoints.begin()
        await self._write(Save(str(unfinished)), unfinished)
        self._checkpoints.seal(self.updates)
        self._resumed = self.updates

    async def _write(self, command: Command, folder: Path) -> None:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            await self._ask(command)
        except (OSError, TrainingError) as error:
            raise RunDirectoryError(
                f"cannot write {folder}: {error}; the last checkpoint is that of update {self._resumed}"
            ) from error

    # --- completions ---

    async def generate(self, request: Request, *, adapter: bool) -> Reply:
        """Answer a request; those that are waiting together are decoded together."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[adapter].append((request, answer))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._answer_waiting())
        return await answer

    async def _answer_waiting(self) -> None:
        await asyncio.sleep(0)  # those who ask at the same time come together
        while any(self._waiting.values()):
            adapter = bool(self._waiting[True])
            size = AT_ONCE * self._engine.max_batch_size
            taken, self._waiting[adapter] = self._waiting[adapter][:size], self._waiting[adapter][size:]
            asked = [(request, answer) for request, answer in taken if not answer.done()]
            try:
                replies = await self._replies([request for request, _ in asked], adapter)
            except Exception as error:
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), reply in zip(asked, replies, strict=True):
                if not answer.done():
                    answer.set_result(reply)

    async def _replies(self, requests: Sequence[Request], adapter: bool) -> Sequence[Reply]:
        answer = await self._ask(Generate(requests=tuple(requests), adapter=adapter))
        return answer.replies if isinstance(answer, Replies) else ()

    async def exported_for_rollouts(self) -> Path:
        """Write the present adapter into a folder that another engine reads it from; return the folder."""
        folder = (self._checkpoints.folder / f"{ROLLOUTS}{self.updates}").resolve()
        if self._past is None:
            await self._write(Export(str(folder), self._model.id), folder)
        return folder

    # --- the trainer ---

    async def _ask(self, command: Command) -> Answer:
        return await (await self._trainer()).ask(command)

    async def _trainer(self) -> TrainerProcess:
        async with self._starting:
            if self._process is None:
                if self.updates != self._resumed:
                    raise TrainingError(
                        f"{self._run}: the checkpoint of update {self._resumed} is there, and the journal lacks what "
                        f"led to it after update {self.updates}; remove the folder {CHECKPOINTS} to begin anew"
                    )
                self._process = await TrainerProcess.start(self._job(), self._run / LOG)
            return self._process

    def _job(self) -> Job:
        self._checkpoints.folder.mkdir(parents=True, exist_ok=True)
        return Job(
            socket="",
            model=self._model,
            weights=resolve(self._model),
            training=self.training,
            objective=self._objective,
            seed=self._seed,
            folder=str(self._checkpoints.folder.resolve()),
            checkpoint=str(self._checkpoints.path(self._resumed).resolve()) if self._resumed else None,
            device=self._engine.device,
            max_batch_size=self._engine.max_batch_size,
            prefix_cache_tokens=self._engine.prefix_cache_tokens,
        )


class _Served:
    """The trainer's own weights as a language model."""

    def __init__(self, policy: Policy, model: str, *, adapter: bool) -> None:
        self._policy = policy
        self._model = model
        self._adapter = adapter

    @property
    def name(self) -> str:
        """The model, and after how many updates."""
        return f"{self._model}@{self._policy.updates}" if self._adapter else self._model

    async def complete(self, request: Request) -> Reply:
        """Answer one request; see `LanguageModel.complete`."""
        return await self._policy.generate(request, adapter=self._adapter)

    async def close(self) -> None:
        """Nothing of its own to release."""


class _Synchronised:
    """An engine beside the trainer, given the adapter anew after each update."""

    def __init__(self, policy: Policy, base: TakesAdapters, model: str) -> None:
        self._policy = policy
        self._base = base
        self._model = model
        self._view: LanguageModel | None = None
        self._folder: Path | None = None
        self._changing = asyncio.Lock()

    @property
    def name(self) -> str:
        """The model, and after how many updates."""
        return f"{self._model}@{self._policy.updates}"

    async def complete(self, request: Request) -> Reply:
        """Answer one request with the present weights."""
        async with self._changing:
            if self._view is None or self._view.name != self.name:
                self._view = await self._renewed()
        return await self._view.complete(request)

    async def _renewed(self) -> LanguageModel:
        former = self._folder
        self._folder = await self._policy.exported_for_rollouts()
        view = await self._base.under(self._folder, self.name)
        if former is not None:
            shutil.rmtree(former, ignore_errors=True)
        return view

    async def close(self) -> None:
        """The base is closed by whoever opened it."""


def _key(update: int) -> str:
    return f"*|{update}|update|0|0"


def _digest(command: Command) -> bytes:
    return blake2b(encode(command), digest_size=16).digest()


def _is_made_by(folder: Path, made_by: dict[str, object]) -> bool:
    try:
        return bool(msgspec.json.decode((folder / MADE_BY).read_bytes()) == made_by)
    except (OSError, msgspec.DecodeError):
        return False
