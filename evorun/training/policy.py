"""The policy that a run trains: gives its method completions from the weights, and updates the weights.

Each update is an effect in the run's journal, identified by its number and all its training data. A method therefore
needs no code to resume: a resumed run repeats its steps from the journal. It looks up the updates before the newest
checkpoint, and recomputes later ones from the recorded completions and rewards. The repetition also restores the
method's state and the position in the data.

A call gets the weights of its step, in whatever order updates and calls are issued. The trainer holds the newest
weights, and former ones for calls made during an update (`TrainingConfig.former_versions`), also in a resumed run. A
completion, and all turns of an episode, have one version of the weights, since engines hold an adapter for each.

The trainer process starts on the first request that neither the journal nor a checkpoint can answer.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
from msgspec import UNSET

from evorun.errors import RunDirectoryError, TrainingError
from evorun.models.adapters import ModelUnderAdapter
from evorun.models.base import (
    LanguageModel,
    ReceivesWeights,
    Reply,
    Request,
    Sleeps,
    TakesAdapters,
    TakesWeights,
    Trained,
    WeightReceiver,
)
from evorun.models.busy import BusyTime, at_work
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve
from evorun.models.transformers.engine import TransformersConfig
from evorun.runs.journal import Journal
from evorun.runs.journal_file import digest_request
from evorun.runs.manifest import SmallerPasses
from evorun.runs.paths import display
from evorun.runs.records import write_json
from evorun.runs.replay import RecordedRun
from evorun.runs.stopwatch import Stopwatch
from evorun.training.base import GetScores, UpdatesByStep
from evorun.training.checkpoints import ROLLOUTS, Checkpoints, choose_sync_folder, remove_rollouts
from evorun.training.config import TrainingConfig
from evorun.training.failures import OutOfMemory
from evorun.training.held_adapters import HeldAdapters
from evorun.training.process import LOG
from evorun.training.reductions import Reductions
from evorun.training.replaced_weights import ReplacedWeights, WeightFolders
from evorun.training.settings import require_share
from evorun.training.sleeping_engines import SleepingEngines
from evorun.training.trainers import Trainer, start_trainer
from evorun.training.updates import assess_key, find_updates, update_key
from evorun.training.wire import (
    Answer,
    Command,
    Evaluate,
    Export,
    Figures,
    FineTuning,
    Generate,
    Job,
    Objective,
    Replies,
    Row,
    Save,
    Send,
    Train,
    decode_command,
    encode,
)

log = logging.getLogger("evorun")

CHECKPOINTS = "checkpoints"
ADAPTER = "adapter"
"""Folder in artifacts/ with the trained LoRA adapter, in PEFT's format."""
KEPT = "adapters"
"""Folder in artifacts/ with the adapters of earlier steps, in folders `step_N`."""
FULL_MODEL = "model"
"""Folder in artifacts/ with the trained model, if all weights were trained."""
EXPORT_INFO = "evorun.json"
"""File in these folders that names model, seed and number of updates."""

# A trade-off: more requests keep the trainer's batch full, but a killed run loses all unanswered ones.
BATCHES_IN_FLIGHT = 4
"""Requests sent to the trainer at once, in units of its maximum batch. `ours`."""


class Policy:
    """A base model and its trained weights. Belongs to one event loop."""

    def __init__(
        self,
        *,
        model: ModelConfig,
        engine: TransformersConfig,
        training: TrainingConfig,
        objective: Objective,
        seed: int,
        run: Path,
        journal: Journal,
        past: RecordedRun | None = None,
        note_reduction: Callable[[SmallerPasses], None] = lambda made: None,
        first_checkpoint: int = 0,
    ) -> None:
        """engine: settings of the trainer's decoding. run: the run directory. past: the run to replay without training.

        note_reduction: receives smaller passes after memory has run out. first_checkpoint: see `Origin`.

        Raises ConfigError when the trainer's processes cannot share a batch of conversations equally, RunDirectoryError
        without a checkpoint that the run may train from.
        """
        if isinstance(objective, FineTuning):
            require_share(objective.batch, training.processes)
        self.training = training
        self.max_lag = training.max_lag
        self.stopwatch = Stopwatch()
        self.gpus: Sequence[BusyTime] = ()
        """The times of the GPUs that the trainer uses."""
        self.updates = 0
        """Number of updates so far."""
        self.current: Trained = _ByStep(self, model.id, self.generate)
        """Completions from the weights of a step; the model's name contains their number of updates."""
        self.reference: LanguageModel = ModelUnderAdapter(model.id, partial(self.generate, None))
        """Completions of the untrained model."""
        self._model = model
        self._engine = engine
        self._objective = objective
        self._seed = seed
        self._run = run
        self._journal = journal
        self._past = past
        self._checkpoints = Checkpoints(run / CHECKPOINTS, training.keep)
        self._sync_folder = choose_sync_folder(training.sync_folder, self._checkpoints.folder)
        # Ignore a checkpoint whose update is not in the journal: it belongs to another history of the run.
        recorded = find_updates(journal.keys())
        self._resumed = 0 if past is not None else self._checkpoints.newest(recorded, training.former_versions)
        """The update whose checkpoint the trainer starts from."""
        if past is None and self._resumed < first_checkpoint:
            raise RunDirectoryError(
                f"{display(run / CHECKPOINTS)}: expected the checkpoint of update {first_checkpoint} or a later one, "
                "found none: the updates up to it had other settings of training; restore it, or begin the run anew"
            )
        self._oldest = self._checkpoints.oldest_version(self._resumed)
        """The oldest update whose weights the trainer has when it starts."""
        self._restarted = 0
        """The number of the latest restart, from which the updates since began; 0: there was none."""
        self._weights = self._resumed
        """The trainer's newest update, including one in progress."""
        self.issued = UpdatesByStep()
        self._open: dict[asyncio.Future[None], int] = {}
        """The version of the weights that answers each open request."""
        self._engines_beside = SleepingEngines(self.stopwatch)
        self._rollout_engine: HeldAdapters | ReplacedWeights | None = None
        self._updating = asyncio.Lock()
        self._reductions = Reductions(journal, training, engine)
        self._note_reduction = note_reduction
        self._unsaved: list[bytes] = []
        """The trainer's updates since its checkpoint, encoded, to be made again by another trainer."""
        self._asking = asyncio.Lock()
        self._process: Trainer | None = None
        self._waiting: dict[int | None, list[tuple[Request, asyncio.Future[Reply]]]] = {}
        """Requests by the update whose weights answer them; None: the reference policy."""
        self._pump: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[LanguageModel] | None = None

    def share_gpu_with(self, engine: Sleeps) -> None:
        """Let an engine sleep during updates, which need its memory: its calls and updates take turns."""
        self._engines_beside.add(engine)

    def serve_via(self, base: TakesAdapters) -> Trained:
        """Return the policy served by another engine, which receives the adapter of each update."""
        self._rollout_engine = HeldAdapters(
            base,
            self._model.id,
            self.export_for_rollouts,
            self.has,
            self.stopwatch,
            self.training.former_versions,
        )
        return _ByStep(self, self._model.id, self._rollout_engine.generate)

    def replace_weights_of(self, engine: TakesWeights, transfer: str = "folder") -> Trained:
        """Return the policy served by another engine, which receives all weights of each update.

        transfer: ipc or nccl: from the trainer's memory; folder: through one. The policy closes the engine, which
        serves no other role.
        """
        log.info("vLLM gets all weights of each update by %s (training.weight_transfer)", transfer)
        if transfer != "folder" and isinstance(engine, ReceivesWeights):
            load: Callable[[int], Awaitable[LanguageModel]] = partial(self._send_weights, engine, transfer)
        else:
            load = WeightFolders(
                engine, self._model.id, self.export_for_rollouts, 1 + self.training.former_versions
            ).load
        self._rollout_engine = ReplacedWeights(engine, load, self.stopwatch)
        return _ByStep(self, self._model.id, self._rollout_engine.generate)

    async def update(
        self,
        step: int,
        rows: Sequence[Row],
        *,
        rewards_changed: bool = False,
        get_scores: GetScores | None = None,
    ) -> Figures:
        """Learn from a batch of completions; return TRL's figures, and the advantages that the trainer estimates.

        Raises TrainingError or RunDirectoryError.
        """
        return await self._learn(step, tuple(rows), rewards_changed=rewards_changed)

    async def train_step(self, step: int) -> dict[str, float]:
        """Make a fine-tuning step on the next conversations; return TRL's figures."""
        return (await self._learn(step)).figures

    async def restart(self, step: int) -> None:
        """Go back to the untrained weights and a new optimiser: the next command starts a trainer of its own.

        A restart counts as an update. It needs no record, since the method's position implies it.
        """
        number = self.issued.issue(step)
        async with self._updating, self._asking:
            self.updates = number
            if self._past is not None or number <= self._resumed:  # the checkpoint is of a later update
                return
            if self._process is not None:
                await self._process.close()
                self._process = None
            self._restarted = self._weights = self._oldest = number
            self._unsaved.clear()

    async def evaluate(self) -> dict[str, float]:
        """Return the size of the fine-tuning data and the loss on the held-out part (`FineTuner.evaluate`)."""
        return (await self._measure(assess_key(self.updates), Evaluate())).figures

    async def export(self, step: int | None = None) -> Path:
        """Write the trained weights into artifacts/; return their folder. Raises RunDirectoryError when that fails.

        step: names a separate folder for them.
        """
        name = ADAPTER if self.training.weights == "lora" else FULL_MODEL
        folder = self._run / "artifacts" / (name if step is None else f"{KEPT}/step_{step}")
        info = {"model": self._model.id, "updates": self.updates, "seed": self._seed}
        try:
            written = bool(msgspec.json.decode((folder / EXPORT_INFO).read_bytes()) == info)
        except (OSError, msgspec.DecodeError):
            written = False
        if self._past is None and not written:
            self._require(self.updates)
            # A run killed during the export resumes from here, without repeating the updates since the last checkpoint.
            if self.updates > self._resumed:
                await self._save()
            await self._write(Export(str(folder), self._model.id, self.updates), folder)
            # Written last, so that an incomplete export is repeated.
            write_json(folder / EXPORT_INFO, info)
        return folder

    async def close(self) -> None:
        """End the trainer process; idempotent."""
        for task in (self._pump, self._sending):
            if task is not None:
                task.cancel()
        if isinstance(self._rollout_engine, ReplacedWeights):
            await self._rollout_engine.close()
        if self._process is not None:
            await self._process.close()
            self._process = None
        remove_rollouts(self._sync_folder)

    # --- updates ---

    async def _learn(self, step: int, rows: tuple[Row, ...] = (), *, rewards_changed: bool = False) -> Figures:
        number = self.issued.issue(step)
        async with self._updating:
            # Their weights will be gone after this update, also for a run that is killed now and resumed from it.
            oldest = number - self.training.former_versions
            while early := [answer for answer, version in self._open.items() if version < oldest]:
                await asyncio.wait(early)
            to_make = self._past is None and number > self._resumed
            command = Train(number=number, rows=rows, rewards_changed=rewards_changed)
            figures = await self._measure(update_key(step, number), command, repeat=to_make)
            self.updates = number
            if to_make and number % self.training.save_every == 0:
                await self._save()
            # Calls during the next update need these weights, and the trainer exports nothing while it is busy.
            if to_make and self.max_lag and self._rollout_engine is not None:
                await self._rollout_engine.load(number)
        return figures

    async def _measure(self, key: str, command: Train | Evaluate, *, repeat: bool = False) -> Figures:
        """Return the figures of a command, from the journal if it is recorded there.

        A replayed run trains nothing: it raises JournalError if the recorded run did not carry out the command.
        """
        about = encode(command)

        async def measure() -> Figures:
            if self._past is not None:
                return self._past.result(key, about, Figures)
            self._require(self.updates)
            if isinstance(command, Train):
                self._weights = command.number
            # In this order: an engine that receives weights is awake while the trainer sends them.
            async with self._asking, self._engines_beside.asleep():
                answer = await (self._train(command) if isinstance(command, Train) else self._answer(command))
            return answer if isinstance(answer, Figures) else Figures({})

        request = msgspec.json.encode(
            {"model": f"{self._model.id}@{self.updates}", "digest": digest_request(about).hex()}
        )
        return await self._journal.remember(key, about, measure, Figures, request=request, repeat=repeat)

    async def _train(self, command: Train) -> Answer:
        """Make an update; return its figures as they are on every repetition."""
        with self.stopwatch.during("training"):
            answer = await self._answer(command)
        if not isinstance(answer, Figures):
            return answer
        if answer.speed is not UNSET:
            self.stopwatch.add(trained=answer.speed.tokens, trained_seconds=answer.speed.seconds)
            if answer.speed.memory is not None:
                self.stopwatch.note_largest("trainer_memory", answer.speed.memory)
            if answer.speed.mfu is not None:
                self.stopwatch.note_largest("mfu", answer.speed.mfu)
        retried = self._reductions.figures(command.number)
        return Figures({**answer.figures, **retried}, answer.advantages)

    def has(self, version: int) -> bool:
        """Return whether the trainer, running or not yet started, has an update's weights."""
        return max(self._oldest, self._weights - self.training.former_versions) <= version <= self._weights

    def _require(self, version: int, *, newest: bool = True) -> None:
        """Raise TrainingError if the trainer lacks an update's weights. newest: they must be its current weights."""
        if version != self._weights and (newest or not self.has(version)):
            raise TrainingError(
                f"{self._run}: expected the trainer to have the weights of update {version}, it has those of update "
                f"{self._weights}; if the journal lacks the steps before a checkpoint, remove the folder {CHECKPOINTS} "
                "and start again"
            )

    async def _save(self) -> None:
        """Write a checkpoint after the newest update."""
        unfinished = self._checkpoints.begin()
        await self._write(Save(str(unfinished)), unfinished)
        self._checkpoints.seal(self.updates)
        self._resumed = self.updates
        self._unsaved.clear()

    async def _write(self, command: Save | Export, folder: Path) -> None:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            await self._ask(command)
        except (OSError, TrainingError) as error:
            raise RunDirectoryError(
                f"cannot write {folder}: {error}; the last checkpoint is that of update {self._resumed}"
            ) from error

    # --- completions ---

    async def generate(self, version: int | None, request: Request) -> Reply:
        """Answer a request with the weights of an update (None: the untrained ones), batched with others.

        Raises TrainingError when the trainer no longer has these weights.
        """
        if version is not None:
            self._require(version, newest=False)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(version, []).append((request, answer))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._answer_waiting())
        return await answer

    @asynccontextmanager
    async def keep_weights(self, version: int) -> AsyncIterator[None]:
        """Wait for an update in progress, and keep its weights until the block ends."""
        if version > self.updates:
            async with self._updating:
                pass
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[answered] = version
        try:
            yield
        finally:
            del self._open[answered]
            answered.set_result(None)

    async def _answer_waiting(self) -> None:
        await asyncio.sleep(0)  # ready tasks may now make their requests, which join the batch
        size = BATCHES_IN_FLIGHT * self._engine.max_batch_size
        while self._waiting:
            # The oldest version first, since an update may wait for it. The reference last: no update waits for it.
            version = min(self._waiting, key=lambda version: math.inf if version is None else version)
            taken, rest = self._waiting[version][:size], self._waiting.pop(version)[size:]
            if rest:
                self._waiting[version] = rest
            asked = [(request, answer) for request, answer in taken if not answer.done()]
            try:
                command = Generate(requests=tuple(request for request, _ in asked), version=version)
                answered = await self._ask(command)
                replies = answered.replies if isinstance(answered, Replies) else ()
            except Exception as error:
                # Report the error through the futures: nobody awaits this task, and later requests need answers.
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), reply in zip(asked, replies, strict=True):
                if not answer.done():
                    answer.set_result(reply)

    async def export_for_rollouts(self, version: int) -> Path:
        """Write an update's adapter or weights into a folder for another engine; return the folder."""
        folder = self._sync_folder / f"{ROLLOUTS}{version}"
        if self._past is None:
            self._require(version, newest=False)
            await self._write(Export(str(folder), self._model.id, version, for_engine=True), folder)
        return folder

    async def _send_weights(self, engine: ReceivesWeights, transfer: str, version: int) -> LanguageModel:
        """Let the trainer send an update's weights to an engine; return the engine's view with them."""

        async def receive() -> LanguageModel:
            async with self._asking:
                self._require(version, newest=False)
                process = await self._started()

                async def send(to: WeightReceiver) -> None:
                    command = Send(version=version, transfer=transfer, engine=to.number, processes=to.processes)
                    with at_work(self.gpus):
                        await process.send(command, to.call)

                return await engine.receive_weights(f"{self._model.id}@{version}", send)

        # Not cut short with the request that waits for it: trainer and engine would wait for each other.
        self._sending = asyncio.create_task(receive())
        return await asyncio.shield(self._sending)

    # --- the trainer ---

    async def _ask(self, command: Command) -> Answer:
        async with self._asking:
            return await self._answer(command)

    async def _answer(self, command: Command) -> Answer:
        """Return the trainer's answer; after a lack of memory, that of another trainer with smaller passes."""
        try:
            answer = await self._ask_trainer(command)
        except OutOfMemory as error:
            made = await self._reductions.reduce(command, self._weights, error)
            self._note_reduction(made)
            log.warning(
                "%s: once more with %s=%d, which changes results only by rounding",
                error,
                made.setting,
                made.reduced,
            )
            answer = await self._ask_another_trainer(command)
        if isinstance(command, Train):
            self._unsaved.append(encode(command))
        return answer

    async def _ask_trainer(self, command: Command) -> Answer:
        process = await self._started()
        # A trainer that has left the GPU comes back for completions, too.
        returns = self.training.offload and isinstance(command, Generate)
        async with self._engines_beside.asleep() if returns else nullcontext():
            with at_work(self.gpus):
                return await process.ask(command)

    async def _started(self) -> Trainer:
        """Return the trainer, which starts on the first call."""
        if self._process is None:
            try:
                async with self._engines_beside.asleep():  # it loads its weights onto their GPU
                    self._process = await start_trainer(self._job(), self._run / LOG)
            except OutOfMemory as error:
                raise self._reductions.advise(None, error) from error
        return self._process

    async def _ask_another_trainer(self, command: Command) -> Answer:
        """Restart the trainer from its checkpoint, repeat the updates since, and ask it instead."""
        if self._process is not None:
            await self._process.close()
            self._process = None
        try:
            async with self._engines_beside.asleep():
                for update in self._unsaved:
                    await self._ask_trainer(decode_command(update))
            return await self._ask_trainer(command)
        except OutOfMemory as error:
            raise self._reductions.advise(command, error) from error

    def _job(self) -> Job:
        self._checkpoints.folder.mkdir(parents=True, exist_ok=True)
        began = self._resumed <= self._restarted  # from the untrained weights
        return Job(
            socket="",
            model=self._model,
            weights=resolve(self._model),
            training=replace(self.training, micro_batch_tokens=self._reductions.micro_batch_tokens),
            objective=self._objective,
            seed=self._seed,
            folder=str(self._checkpoints.folder.resolve()),
            checkpoint=None if began else str(self._checkpoints.path(self._resumed).resolve()),
            updates=max(self._resumed, self._restarted),
            device=self._engine.device,
            attention=self._engine.attention,
            max_batch_size=self._reductions.max_batch_size,
            prefix_cache_tokens=self._engine.prefix_cache_tokens,
        )


@dataclass(frozen=True)
class _ByStep:
    """The policy with the weights of each step; implements `Trained`."""

    policy: Policy
    name: str
    generate: Callable[[int, Request], Awaitable[Reply]]
    """Answers a request with the weights of an update."""

    def at(self, step: int) -> LanguageModel:
        version = self.policy.issued.version(step)
        return ModelUnderAdapter(f"{self.name}@{version}", partial(self._answer, version))

    async def _answer(self, version: int, request: Request) -> Reply:
        async with self.policy.keep_weights(version):
            return msgspec.structs.replace(await self.generate(version, request), version=version)

    async def close(self) -> None:
        """Do nothing: the policy releases what it holds."""
