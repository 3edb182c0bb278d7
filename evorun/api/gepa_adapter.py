"""An evorun task under gepa's own functions: `gepa.optimize(adapter=...)` and `optimize_anything(evaluator=...)`.

Answers come from evorun's engines and grades from the task; both are recorded in a journal before they are used.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from gepa.core.adapter import EvaluationBatch

from evorun.api.overrides import Settings, make_overrides
from evorun.cli.plain import composed
from evorun.errors import ConfigError
from evorun.models.base import Message, Reply, Request, Sampling
from evorun.models.config import ModelConfig, ServedModel
from evorun.rollouts.replies import read_reply
from evorun.runner.gold import MethodTools
from evorun.runner.served import open_lazily, read_engine, served_by
from evorun.runner.task_settings import read_sandbox, read_task
from evorun.runner.typed import typed
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun.runs.journal_file import JOURNAL, digest_request
from evorun.runs.program_tests import JournaledTests
from evorun.runs.scores import primary_score
from evorun.runs.streams import call_seed
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import Demonstration, Problem
from evorun.tasks.capabilities import HasTools, SupportsSystemPrompts
from evorun.tasks.thinking import without_thinking

T = TypeVar("T")

COMPONENT = "system_prompt"
"""The component of gepa's candidates: the system prompt under which the task's problems are answered."""


class GepaAdapter:
    """A task whose system prompt gepa evolves; use it as a context manager.

    `train` and `validation` are gepa's data sets, `seed_candidate` its first candidate, `reflect` its `reflection_lm`.
    """

    propose_new_texts = None
    """gepa proposes by its own reflection prompt."""

    def __init__(
        self, folder: str | Path, *settings: Settings, temperature: float = 0.7, max_tokens: int = 1024, **named: Any
    ) -> None:
        """Compose evorun's settings (task=NAME, model=NAME, engine=NAME, ...) and load the task.

        folder: of the journal. temperature, max_tokens: of answers; ours. Raises ConfigError for a task that has no
        system prompt, takes several turns or is graded by opinion.
        """
        values = composed(make_overrides(settings, named))
        config = read_task(values)
        name, offered = config.name, config.task_class
        if not issubclass(offered, SupportsSystemPrompts) or issubclass(offered, HasTools) or offered.graded_by_opinion:
            raise ConfigError(
                f"task={name}: expected a task of one turn with system prompts and ground truth; choose another one"
            )
        self._loaded = config.load()
        self._task: Any = self._loaded.task
        self._measure = primary_score(self._loaded.task.scores)
        self._sampling = Sampling(temperature=temperature, max_tokens=max_tokens)
        self._seed = int(values["seed"])
        self.train: list[Demonstration] = list(self._loaded.validation)
        """Solved problems that are held out (gepa's trainset): only these are shown to its reflection."""
        self.validation: list[Problem] = list(self._loaded.problems)
        """The task's problems (gepa's valset), without their answers."""
        task: Any = self._task
        self.seed_candidate = {COMPONENT: task.seed_instruction()}
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._journal = Journal(Path(folder) / JOURNAL)
        self._sandbox = LazySandbox(read_sandbox(values, config), config.private_files)
        self._tools = MethodTools(JournaledTests(self._sandbox, self._journal))
        engine = read_engine(values, "engine").for_seed(self._seed)
        served = served_by(ServedModel(typed(ModelConfig, values["model"], "model"), engine))
        self._engine = open_lazily(served, served.engine, self._loaded, self._tools)
        self._model = JournaledModel(self._engine, self._journal, Traffic())
        # gepa is synchronous, and engines belong to one event loop.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gepa adapter", daemon=True)
        self._thread.start()

    # --- gepa's protocol ---

    def evaluate(
        self, batch: Sequence[Demonstration | Problem], candidate: Mapping[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[dict[str, str], str]:
        """Answer and grade a batch under a candidate; an equal candidate and problem get their recorded answer."""
        found = self._wait_for(self._gather(batch, candidate[COMPONENT]))
        return EvaluationBatch(
            outputs=[record["Generated Outputs"] for _, record in found],
            scores=[score for score, _ in found],
            trajectories=[record for _, record in found] if capture_traces else None,
        )

    def make_reflective_dataset(
        self, candidate: Mapping[str, str], eval_batch: Any, components_to_update: Sequence[str]
    ) -> dict[str, list[dict[str, str]]]:
        """Return what gepa's reflection is shown of a batch."""
        return {name: list(eval_batch.trajectories) for name in components_to_update}

    def evaluator(self, candidate: str, example: Demonstration | Problem) -> tuple[float, dict[str, str]]:
        """Score a system prompt on one problem (`optimize_anything(evaluator=...)`)."""
        score, record = self._wait_for(self._evaluate(example, candidate))
        return score, record

    def reflect(self, prompt: str | Sequence[Mapping[str, Any]]) -> str:
        """Answer gepa's reflection prompt by the same model."""
        turns: Sequence[Any] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        messages = tuple(Message(role=turn["role"], content=turn["content"]) for turn in turns)
        return without_thinking(self._wait_for(self._ask(messages, {"role": "reflect"})).completions[0].text)

    # --- calls ---

    async def _gather(
        self, batch: Sequence[Demonstration | Problem], instruction: str
    ) -> list[tuple[float, dict[str, str]]]:
        return list(await asyncio.gather(*(self._evaluate(example, instruction) for example in batch)))

    async def _evaluate(self, example: Demonstration | Problem, instruction: str) -> tuple[float, dict[str, str]]:
        solved = example if isinstance(example, Demonstration) else None
        problem = example.problem if isinstance(example, Demonstration) else example
        prompt = self._task.instructed_prompt(problem, instruction)
        reply = await self._ask(prompt.messages, prompt.hints, prompt.json_schema)
        response = read_reply(self._task, problem, reply)
        grade = await self._loaded.grade(problem, response, self._tools)
        value = self._measure.value_in(grade)
        record = {
            "Inputs": prompt.messages[-1]["content"],
            "Generated Outputs": response.text or "(nothing)",
            "Feedback": self._task.reflection_record(problem, response, solved, grade if solved else None),
        }
        return (0.0 if value is None else self._measure.utility(value)), record

    async def _ask(self, messages: tuple[Message, ...], hints: Mapping[str, Any], schema: Any = None) -> Reply:
        digest = digest_request(msgspec.json.encode((messages, self._sampling, schema))).hex()
        request = Request(
            messages=messages,
            sampling=self._sampling,
            seed=call_seed(self._seed, "gepa", digest),
            json_schema=schema,
            hints=hints,
        )
        return await self._model.complete(f"*|0|gepa|{digest}|0", request, once=False)

    # --- life ---

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close engine, sandbox and journal."""
        self._wait_for(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._journal.close()

    async def _close(self) -> None:
        await self._model.finish()
        await self._engine.close()
        await self._sandbox.close()
