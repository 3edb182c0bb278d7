"""Carries out runs in this process on simulated models: counts calls, interrupts on request, fakes verdicts."""

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from evorun.errors import EngineError
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.config import ModelConfig, ServedModel
from evorun.runner import experiment, work
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import RunConfig
from evorun.runner.work import Outcome
from evorun.runs.call_keys import read_role
from evorun.runs.journal_reader import read_journal
from evorun.runs.spending import GOLD
from evorun.runs.terminal import Terminal
from evorun.sandbox.base import CaseResult, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.isolation import Probe
from evorun.simulation.engine import SimulatedConfig
from evorun.simulation.simulator import TaskSimulator

COMPLETED = Outcome("completed")
RECORDS = ("problems", "predictions", "steps", "comparisons", "candidates", "metrics")
RECORDS_OF_LEARNING = ("training", "rollouts", "ratings")
"""Records of methods with training steps, or with candidates that serve all problems."""


@dataclass
class CountedConfig(SimulatedConfig):
    """The simulated engine, which also records its requests and fails after `breaks_after` answers."""

    breaks_after: int | None = None
    asked: list[Request] = field(default_factory=list)

    def open_for(self, model: ModelConfig, simulator: TaskSimulator) -> LanguageModel:
        return _Counted(self, super().open_for(model, simulator))


class _Counted:
    def __init__(self, config: CountedConfig, model: LanguageModel) -> None:
        self.name = model.name
        self._config = config
        self._model = model

    async def complete(self, request: Request) -> Reply:
        if self._config.breaks_after is not None and len(self._config.asked) >= self._config.breaks_after:
            raise EngineError("the engine has broken down")
        self._config.asked.append(request)
        return await self._model.complete(request)

    async def close(self) -> None:
        await self._model.close()


class FakeSandbox:
    """Gives verdicts without running anything: always the same for a program, about half of them `accepted`."""

    # Counts over all instances, since a resumed run opens another sandbox.
    tested = 0

    def __init__(self, config: SandboxConfig, private: Sequence[Path] = ()) -> None: ...

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        """Give each case a verdict from a digest of the program and the case's number."""
        FakeSandbox.tested += 1
        results: list[CaseResult] = []
        for number in range(len(suite.cases)):
            passed = blake2b(f"{number % 2}{program.source}".encode(), digest_size=1).digest()[0] % 2 == 0
            verdict: Any = "accepted" if passed else "wrong_answer"
            results.append(CaseResult(verdict=verdict, stdout="0", stderr="", value=None, cpu_seconds=0.0))
            if stop_at_failure and not passed:
                break
        return tuple(results)

    async def close(self) -> None:
        """Do nothing, since nothing was started."""


class Run(NamedTuple):
    """A finished run, and the requests that reached its engine."""

    path: Path
    outcome: Outcome
    asked: list[Request]

    def records(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a JSONL file."""
        return [json.loads(line) for line in (self.path / f"{name}.jsonl").read_text().splitlines()]

    def files(self) -> dict[str, bytes]:
        """Return the bytes of all record files."""
        learned = [name for name in RECORDS_OF_LEARNING if (self.path / f"{name}.jsonl").exists()]
        return {name: (self.path / f"{name}.jsonl").read_bytes() for name in (*RECORDS, *learned)}

    def json(self, name: str) -> Any:
        """Return a JSON file's value."""
        return json.loads((self.path / name).read_text())

    def effects(self) -> list[tuple[str, bytes, bytes, str | None, float]]:
        """Return key, request, result, usage (of model calls) and seconds of the journal's effects, sorted by key."""
        effects = sorted(read_journal(self.path / "journal.sqlite"), key=lambda effect: effect.key)
        return [(effect.key, effect.request, effect.result, effect.usage, effect.seconds) for effect in effects]

    def calls(self) -> list[str]:
        """Return the keys of the model calls in the journal."""
        return [key for key, _, _, usage, _ in self.effects() if usage is not None]

    def charged_calls(self) -> list[str]:
        """Return the keys of the calls that a budget counts: all but the gold judge's, who grades."""
        return [key for key in self.calls() if read_role(key) != GOLD]

    def results_without_times(self) -> Any:
        """Return results.json without the seconds, which differ between runs."""
        results = self.json("results.json")
        for role in results["cost"].values():
            del role["seconds"]
        return results


def carry_out(config: RunConfig, path: Path, *, breaks_after: int | None = None, real_programs: bool = False) -> Run:
    """Carry out a run to its end, or until the simulated engine fails after `breaks_after` calls.

    real_programs: run programs in the sandbox; otherwise `FakeSandbox` gives their verdicts.
    """
    counted: CountedConfig | None = None
    if config.engine.simulated:
        counted = CountedConfig(**vars(config.engine), breaks_after=breaks_after)
        own = ServedModel(config.model, config.engine)
        config.others = {
            role: served._replace(engine=counted) if served == own else served for role, served in config.others.items()
        }
        config.engine = counted
    with contextlib.ExitStack() as patches:
        if not real_programs:
            probed = mock.Mock(return_value=Probe("fake", True, ""))
            patches.enter_context(mock.patch.object(work, "LazySandbox", FakeSandbox))
            patches.enter_context(mock.patch.object(experiment, "probe", probed))
        outcome = run_experiment(config, path, ["evorun"], Terminal(file=io.StringIO()))
    return Run(path, outcome, [] if counted is None else counted.asked)
