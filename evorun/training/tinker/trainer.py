"""A trainer on a server that speaks Tinker's API.

The server holds adapter and optimiser. Sampling needs a snapshot of the weights there; an update's is made before the
next one. A checkpoint on this disk holds addresses: of the server's state, and of the two latest snapshots.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import aiohttp
import msgspec
import numpy as np

from evorun.errors import EvorunError, TrainingError
from evorun.models.adapters import ADDRESS, CONFIG
from evorun.models.chat import load_tokenizer
from evorun.models.config import ModelConfig
from evorun.models.keys import read_key
from evorun.models.tinker.engine import Snapshot
from evorun.models.tinker.sampling import Sampler, end_tokens
from evorun.models.tinker.service import KEY, close, connect, create, explain
from evorun.runs.records import write_json
from evorun.training.checkpoints import REMOTE
from evorun.training.config import TrainingConfig
from evorun.training.fine_tuning_data import FineTuningData, read_data
from evorun.training.tinker.losses import CROSS_ENTROPY, make_conversation_data, measure_cross_entropy
from evorun.training.tinker.passes import ConversationPasses, Passes, RowPasses
from evorun.training.tinker.requirements import require_objective
from evorun.training.tinker.schedule import learning_rate
from evorun.training.wire import (
    Answer,
    Command,
    Done,
    Evaluate,
    Export,
    Figures,
    FineTuning,
    Finish,
    Generate,
    Job,
    PolicyGradient,
    Replies,
    Row,
    Save,
    Speed,
    Train,
)

log = logging.getLogger("evorun")

DAY_S = 24 * 3600


class Remote(msgspec.Struct, frozen=True):
    """The contents of a checkpoint."""

    state: str
    """Address of adapter and optimiser."""
    snapshots: dict[int, str]
    """Addresses of weights to sample from, by update."""
    optimiser_steps: int
    """Number of steps so far, which decides the learning rate."""


class TinkerTrainer:
    """An adapter on the server; implements `Trainer`. Belongs to one event loop."""

    def __init__(
        self, job: Job, service: Any, client: Any, remote: Remote | None, data: FineTuningData | None = None
    ) -> None:
        """client: Tinker's TrainingClient. remote: of the checkpoint that it was made from, or None.

        data: of a fine-tuning.
        """
        self._job = job
        self._passes: Passes
        if isinstance(job.objective, PolicyGradient):
            self._passes = RowPasses(job, job.objective, self._score_by_reference)
        else:
            assert isinstance(job.objective, FineTuning)  # noqa: S101 - `require_objective` refuses others
            assert data is not None  # noqa: S101 - `start` has read them
            self._passes = ConversationPasses(job, job.objective, data)
        self._service = service
        self._client = client
        self._newest = job.updates
        self._snapshots = {} if remote is None else dict(remote.snapshots)
        self._optimiser_steps = 0 if remote is None else remote.optimiser_steps
        self._scored_tokens = 0
        """Tokens that the base model has scored for the update."""
        self._sampler: Sampler | None = None
        self._closed = False

    @classmethod
    async def start(cls, job: Job) -> "TinkerTrainer":
        """Connect, and create the adapter: from a checkpoint of the job, else a new one.

        Raises TrainingError, DataError or ConfigError with one line.
        """
        training = job.training
        require_objective(job.objective)
        data = None
        if isinstance(job.objective, FineTuning):
            data = await asyncio.to_thread(_read_conversations, job.objective, job.model)
        service = await connect(training.base_url, job.model.id)
        remote = None if job.checkpoint is None else _read_remote(Path(job.checkpoint))
        try:
            if remote is None:
                made = create(
                    service.create_lora_training_client,
                    job.model.id,
                    rank=training.rank,
                    seed=job.seed,
                    train_unembed="lm_head" in training.target_modules,
                )
            else:
                made = create(service.create_training_client_from_state_with_optimizer, remote.state)
            client = await asyncio.wait_for(made, training.hang_timeout)
        except BaseException as error:
            await close(service, "errored")
            if not isinstance(error, Exception):
                raise
            what = "cannot create an adapter" if remote is None else f"cannot restore {remote.state}"
            raise TrainingError(explain(what, error)) from error
        return cls(job, service, client, remote, data)

    async def ask(self, command: Command) -> Answer:
        if self._closed:
            raise TrainingError("the trainer on Tinker's API has ended")
        what = type(command).__name__.lower() + (f" {command.number}" if isinstance(command, Train) else "")
        try:
            return await asyncio.wait_for(self._carry_out(command), self._job.training.hang_timeout)
        except EvorunError:
            raise
        except Exception as error:
            await self.close()
            raise TrainingError(
                f"{explain(what, error)}; `evorun resume RUN_DIR` goes on from the last checkpoint"
            ) from error

    async def send(self, *_: object) -> None:
        """Raise TrainingError: the server keeps the weights."""
        raise TrainingError("training.weight_transfer: Tinker's server sends no weights to an engine; set auto")

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._sampler is not None:
                self._sampler.close()
            await close(self._service)

    async def _carry_out(self, command: Command) -> Answer:
        if isinstance(command, Train):
            return await self._train(command)
        if isinstance(command, Generate):
            return await self._generate(command)
        if isinstance(command, Evaluate):
            return await self._evaluate()
        if isinstance(command, Save):
            await self._save(Path(command.folder))
        elif isinstance(command, Export):
            await self._export(command)
        elif isinstance(command, Finish):
            await self.close()
        return Done()

    async def _train(self, command: Train) -> Figures:
        """Make one optimiser step per pass."""
        from tinker import types

        await self._snapshot(self._newest)  # calls during the update still ask for these weights
        started = time.perf_counter()
        training = self._job.training
        self._scored_tokens = 0
        passes = await self._passes.make(command, self._optimiser_steps)
        steps: list[dict[str, float]] = []
        for data, loss, measure in passes:
            rate = learning_rate(training, self._optimiser_steps, self._passes.steps, self._passes.steps_per_batch)
            adam = types.AdamParams(
                learning_rate=rate,
                beta1=training.beta1,
                beta2=training.beta2,
                eps=training.epsilon,
                weight_decay=training.weight_decay,
                grad_clip_norm=training.max_grad_norm or 0.0,  # 0: none
            )
            # Both are submitted before either is awaited, so that the server need not wait for this process.
            passed = self._client.forward_backward(data, loss.name, loss.settings)
            stepped = self._client.optim_step(adam)
            output, made = await passed, await stepped
            figures = {**measure(_read_logprobs(output)), "learning_rate": rate, **_read_norm(made.metrics, training)}
            for figure, value in figures.items():
                if not np.isfinite(value):
                    raise TrainingError(
                        f"update {command.number}: expected numbers, got {figure} {value}; lower training.learning_rate"
                    )
            steps.append(figures)
            self._optimiser_steps += 1
        self._newest = command.number
        seconds = time.perf_counter() - started
        tokens = sum(datum.model_input.length + 1 for made in passes for datum in made.data)
        means = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        billed = {"trained_tokens": float(sum(datum.model_input.length for made in passes for datum in made.data))}
        if self._scored_tokens:
            billed["scored_tokens"] = float(self._scored_tokens)
        return Figures({**means, **billed}, speed=Speed(tokens=tokens, seconds=seconds, memory=None, mfu=None))

    async def _evaluate(self) -> Figures:
        """Return the numbers of conversations, and the mean loss over the tokens of all held-out answers."""
        assert isinstance(self._passes, ConversationPasses)  # noqa: S101 - only a fine-tuning asks
        held_out = self._passes.data.held_out
        described = self._passes.data.describe()
        if not held_out:
            return Figures(described)
        data = make_conversation_data(held_out)
        loss = measure_cross_entropy(held_out, _read_logprobs(await self._client.forward(data, CROSS_ENTROPY.name)))
        scored = float(sum(datum.model_input.length for datum in data))
        return Figures({**described, "held_out_loss": loss, "scored_tokens": scored})

    async def _score_by_reference(self, rows: Sequence[Row]) -> dict[int, np.ndarray]:
        """Return the base model's log-probabilities of all tokens of each row but the first, by the row's identity."""
        from tinker import types

        client = await create(self._service.create_sampling_client, base_model=self._job.model.id)
        inputs = [types.ModelInput.from_ints([*row.prompt, *row.tokens]) for row in rows]
        self._scored_tokens = sum(tokens.length for tokens in inputs)
        scored = await asyncio.gather(*(client.compute_logprobs(tokens).result_async() for tokens in inputs))
        return {id(row): np.array(logprobs[1:], dtype=np.float64) for row, logprobs in zip(rows, scored, strict=True)}

    async def _generate(self, command: Generate) -> Replies:
        if self._sampler is None:
            self._sampler = await asyncio.to_thread(Sampler, self._job.model, self._job.training.hang_timeout)
        if command.version is None:
            client = await create(self._service.create_sampling_client, base_model=self._job.model.id)
        else:
            address = await self._snapshot(command.version)
            client = await create(self._service.create_sampling_client, model_path=address)
        replies = await asyncio.gather(*(self._sampler.answer(client, request) for request in command.requests))
        return Replies(tuple(replies))

    async def _save(self, folder: Path) -> None:
        await self._snapshot(self._newest)
        saved = await self._client.save_state(self._name(self._newest), ttl_seconds=self._ttl, overwrite=True)
        folder.mkdir()  # noqa: ASYNC240 - a call of microseconds
        write_json(folder / REMOTE, Remote(saved.path, self._snapshots, self._optimiser_steps))

    async def _export(self, command: Export) -> None:
        """Write a snapshot's address or, at the run's end, download the adapter."""
        folder = Path(command.folder)
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - a call of microseconds
        version = self._newest if command.version is None else command.version
        write_json(folder / ADDRESS, Snapshot(await self._snapshot(version)))
        if command.for_engine:
            return
        try:
            saved = await self._client.save_weights_external(self._name(version), ttl_seconds=self._ttl)
            await download(self._job.training.base_url, saved.path, folder)
        except Exception as error:
            # The weights are not lost: they are on the server, under the address that is written above.
            log.warning("%s: only their address is left, in %s", explain("no download", error), folder / ADDRESS)
            return
        config = folder / CONFIG
        if config.is_file():  # names the base model as a user does, not as the server does
            settings = {**msgspec.json.decode(config.read_bytes()), "base_model_name_or_path": command.base}
            config.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2))

    async def _snapshot(self, version: int) -> str:
        """Return the address of an update's weights to sample from. Raises TrainingError if they are gone."""
        if version not in self._snapshots:
            if version != self._newest:
                raise TrainingError(
                    f"expected a request for the weights of update {self._newest}, got one for update {version}"
                )
            saved = await self._client.save_weights_for_sampler(self._name(version), ttl_seconds=self._ttl)
            oldest = version - self._job.training.former_versions  # calls beside an update may still ask for it
            kept = {number: path for number, path in self._snapshots.items() if number >= oldest}
            self._snapshots = {**kept, version: saved.path}
        return self._snapshots[version]

    def _name(self, version: int) -> str:
        return f"update-{version}"

    @property
    def _ttl(self) -> int | None:
        days = self._job.training.ttl_days
        return None if days is None else days * DAY_S


def _read_conversations(objective: FineTuning, model: ModelConfig) -> FineTuningData:
    tokenizer = load_tokenizer(model)
    return read_data(objective, model, tokenizer, end_tokens(model, tokenizer))


def _read_remote(folder: Path) -> Remote:
    try:
        return msgspec.json.decode((folder / REMOTE).read_bytes(), type=Remote)
    except (OSError, msgspec.DecodeError) as error:
        raise TrainingError(
            f"{folder}: expected {REMOTE} with the address of a checkpoint on Tinker's server ({error}); a checkpoint "
            "of another trainer resumes with training.backend=trl"
        ) from error


def _read_logprobs(output: Any) -> list[np.ndarray]:
    """Return the log-probabilities of each datum's targets."""
    return [result["logprobs"].to_numpy() for result in output.loss_fn_outputs]


def _read_norm(metrics: dict[str, float] | None, training: TrainingConfig) -> dict[str, float]:
    """Return the norm of the gradient before clipping, if the server gives it."""
    found = next((value for name, value in (metrics or {}).items() if "grad" in name and "norm" in name), None)
    if found is None:
        return {}
    longest = training.max_grad_norm
    return {"grad_norm": found, "clipped_gradients": float(longest is not None and found > longest)}


async def download(base_url: str | None, address: str, folder: Path) -> None:
    """Write the files of exported weights into a folder. Raises the errors of Tinker's package and of aiohttp."""
    import tinker

    client = await asyncio.to_thread(tinker.RestClient, base_url=base_url, api_key=read_key(KEY))
    found = await client.get_external_weights_urls(address)
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        for name, url in found.urls.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"the server names a file outside the folder: {name!r:.100}")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            async with session.get(url) as response:
                with (folder / path).open("wb") as file:
                    async for chunk in response.content.iter_chunked(1 << 20):
                        file.write(chunk)
