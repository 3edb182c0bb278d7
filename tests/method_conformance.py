"""What every method must do on every task that suits it, as tests: subclass `MethodConformance`, provide `arguments`.

`arguments` is a class-scoped fixture: the words that would follow `evorun` on a command line, choosing a method, a task
with problems at hand, and a size that takes some dozens of calls. Everything runs in this process on the task's
simulator (`engine=simulated`); programs are not run but given verdicts by their digest, unless `real_sandbox` is set.
"""

import copy
import io
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from evorun.cli.compose import config_folder, register
from evorun.errors import ConfigError, EngineError
from evorun.models import LanguageModel, Reply, Request
from evorun.models.config import ModelConfig
from evorun.models.simulated import SimulatedConfig
from evorun.models.simulator import Simulator
from evorun.runner import experiment
from evorun.runner.experiment import Outcome, run_experiment
from evorun.runner.settings import RunConfig, check
from evorun.sandbox.base import CaseResult, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.isolation import Probe
from evorun.tasks.base import Problem
from evorun_process import RECORDS

UNINFORMED = ("problem_only", "public_tests")
"""Regimes in which a method must not see the validation split."""


@dataclass
class CountingConfig(SimulatedConfig):
    """The simulated engine, with a count of its calls; it breaks down once it has answered `breaks_after` of them."""

    breaks_after: int | None = None
    asked: list[Request] = field(default_factory=list)

    def open_for(self, model: ModelConfig, simulator: Simulator) -> LanguageModel:
        return _Counting(self, super().open_for(model, simulator))


class _Counting:
    def __init__(self, config: CountingConfig, model: LanguageModel) -> None:
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


class PretendedSandbox:
    """Gives verdicts without running anything: the same program has the same ones, and half of them are right."""

    tested = 0

    def __init__(self, config: SandboxConfig) -> None: ...

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        PretendedSandbox.tested += 1
        results: list[CaseResult] = []
        for place in range(len(suite.cases)):
            passed = blake2b(f"{place % 2}{program.source}".encode(), digest_size=1).digest()[0] % 2 == 0
            verdict = "accepted" if passed else "wrong_answer"
            results.append(CaseResult(verdict=verdict, stdout="0", stderr="", value=None, cpu_seconds=0.0))  # type: ignore[arg-type]
            if stop_at_failure and not passed:
                break
        return tuple(results)

    async def close(self) -> None: ...


class Run(NamedTuple):
    """A run that has ended, and what its engine was asked."""

    path: Path
    outcome: Outcome
    asked: list[Request]

    def records(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a file."""
        return [json.loads(line) for line in (self.path / f"{name}.jsonl").read_text().splitlines()]

    def files(self) -> dict[str, bytes]:
        """Return the bytes of all record files."""
        return {name: (self.path / name).read_bytes() for name in RECORDS}

    def json(self, name: str) -> Any:
        """Return a JSON file's value."""
        return json.loads((self.path / name).read_text())

    def effects(self) -> list[tuple[str, bytes, bytes, str | None, float]]:
        """Return the journal's rows: key, request, result, usage (of model calls), seconds."""
        with sqlite3.connect(self.path / "journal.sqlite") as db:
            return db.execute("SELECT key, request, result, usage, seconds FROM effects ORDER BY key").fetchall()

    def calls(self) -> list[str]:
        """Return the keys of the model calls in the journal."""
        return [key for key, _, _, usage, _ in self.effects() if usage is not None]

    def results_without_times(self) -> Any:
        """Return results.json without the seconds, which no two runs share."""
        results = self.json("results.json")
        for role in results["cost"].values():
            del role["seconds"]
        return results


@cache
def _composed(arguments: tuple[str, ...]) -> DictConfig:
    register()
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return compose("config", overrides=["engine=simulated", "evorun.progress=off", *arguments])


def composed(arguments: tuple[str, ...], changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Return what a command line stands for, with other values for some keys; composing takes longer than a run."""
    config = copy.deepcopy(_composed(arguments))
    for key, value in (changes or {}).items():
        OmegaConf.update(config, key, value, merge=False)
    raw: Any = OmegaConf.to_container(config, resolve=True)
    return check(raw)


def counting(engine: SimulatedConfig, breaks_after: int | None) -> CountingConfig:
    """Return the same engine, counted."""
    values = {one.name: getattr(engine, one.name) for one in fields(engine)}
    return CountingConfig(**values, breaks_after=breaks_after)


@contextmanager
def pretended_sandbox() -> Iterator[None]:
    """Let no run start a sandbox."""
    with (
        mock.patch.object(experiment, "LazySandbox", PretendedSandbox),
        mock.patch.object(experiment, "probe", mock.Mock(return_value=Probe("pretended", True, ""))),
    ):
        yield


def own_lines_of_examples(config: RunConfig) -> set[str]:
    """Return a line of each validation problem's prompt by which it can be told from the problems of the run."""
    loaded = config.task.load(config.seed)

    def lines(problem: Problem) -> set[str]:
        task: Any = loaded.task
        messages = task.generation_prompt(problem).messages
        return {line for message in messages for line in message["content"].splitlines()}

    common = {line for problem in loaded.problems for line in lines(problem)}
    found = {max(lines(example.problem) - common, key=len) for example in loaded.validation}
    assert found
    return found


class MethodConformance:
    """The suite."""

    real_sandbox = False

    @pytest.fixture(scope="class")
    @classmethod
    def arguments(cls) -> tuple[str, ...]:
        """The method, the task and their size."""
        raise NotImplementedError

    @classmethod
    def run(
        cls,
        path: Path,
        arguments: tuple[str, ...],
        changes: Mapping[str, Any] | None = None,
        breaks_after: int | None = None,
    ) -> Run:
        """Carry out a run to its end, or to the engine's."""
        config = composed(arguments, changes)
        engine: Any = config.engine
        if isinstance(engine, SimulatedConfig):
            config.engine = engine = counting(engine, breaks_after)
        with nullcontext() if cls.real_sandbox else pretended_sandbox():
            outcome = run_experiment(config, path, ["evorun", *arguments], Console(file=io.StringIO()))
        return Run(path, outcome, getattr(engine, "asked", []))

    @pytest.fixture(scope="class")
    @classmethod
    def finished(cls, arguments: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Run:
        """A run that nothing disturbed."""
        run = cls.run(tmp_path_factory.mktemp("finished") / "run", arguments)
        assert run.outcome == Outcome("completed")
        return run

    def test_every_problem_has_one_prediction(self, finished: Run) -> None:
        problems = [record["problem"] for record in finished.records("problems")]
        predictions = finished.records("predictions")
        assert problems
        assert [record["problem"] for record in predictions] == problems
        assert {record["stop"] for record in predictions} <= {"generations", "failed"}
        assert finished.json("results.json")["counts"]["problems"] == len(problems)

    def test_records_refer_to_one_another(self, finished: Run) -> None:
        candidates = {(c["problem"], c["id"]): c for c in finished.records("candidates")}
        assert len(candidates) == len(finished.records("candidates"))
        seen: dict[tuple[str, str], dict[str, Any]] = {}
        for (problem, name), candidate in candidates.items():
            # parents come first; a mutant and its original may be of the same generation
            parents = [seen[problem, parent] for parent in candidate["parents"]]
            assert all(parent["generation"] <= candidate["generation"] for parent in parents)
            seen[problem, name] = candidate
        for step in finished.records("steps"):
            assert (
                step["best"] is None or step["best"]["text"] == candidates[step["problem"], step["best"]["id"]]["text"]
            )
        for duel in finished.records("comparisons"):
            assert duel["first"] != duel["second"]
            assert {(duel["problem"], duel["first"]), (duel["problem"], duel["second"])} <= set(candidates)
            assert len(duel["verdicts"]) == len(duel["reasons"])
        for record in finished.records("predictions"):
            if record["candidate"] is not None:
                assert record["answer"] == candidates[record["problem"], record["candidate"]]["answer"]

    def test_every_call_is_paid_for_once(self, finished: Run) -> None:
        made = Counter(key.rsplit("|", 4)[2] for key in finished.calls())
        cost = finished.json("results.json")["cost"]
        assert {role: spent["calls"] for role, spent in cost.items() if role != "total"} == dict(made)
        assert cost["total"]["calls"] == sum(made.values()) == len(finished.asked)
        usages = [json.loads(usage) for *_, usage, _ in finished.effects() if usage is not None]
        for kind in ("prompt_tokens", "completion_tokens"):
            assert cost["total"][kind] == sum(usage[kind] for usage in usages)
            predicted = [spent[kind] for p in finished.records("predictions") for spent in p["cost"].values()]
            assert cost["total"][kind] == sum(predicted)

    def test_costs_only_grow(self, finished: Run) -> None:
        last: dict[str, dict[str, Any]] = {}
        for step in finished.records("steps"):
            before = last.get(step["problem"], {})
            for role, spent in before.items():
                assert all(step["cost"][role][kind] >= amount for kind, amount in spent.items())
            last[step["problem"]] = step["cost"]

    def test_it_sees_no_more_than_its_regime_allows(self, finished: Run, arguments: tuple[str, ...]) -> None:
        config = composed(arguments)
        regime = config.method.regime_on(config.task.task_class)
        assert finished.json("manifest.json")["regime"] == regime
        own_lines = own_lines_of_examples(config)
        prompts = [message["content"] for request in finished.asked for message in request.messages]
        seen = any(line in prompt for line in own_lines for prompt in prompts)
        assert not (seen and regime in UNINFORMED)

    def test_concurrency_changes_no_record(self, finished: Run, arguments: tuple[str, ...], tmp_path: Path) -> None:
        again = self.run(tmp_path / "run", arguments, {"run.concurrency": 1})
        assert again.files() == finished.files()
        assert again.results_without_times() == finished.results_without_times()
        assert [effect[:2] for effect in again.effects()] == [effect[:2] for effect in finished.effects()]

    def test_replay_repeats_it_without_an_engine(
        self, finished: Run, arguments: tuple[str, ...], tmp_path: Path
    ) -> None:
        tested = PretendedSandbox.tested
        again = self.run(tmp_path / "run", arguments, {"engine": {"name": "replay", "run": str(finished.path)}})
        assert again.outcome == Outcome("completed")
        assert again.files() == finished.files()
        assert (again.path / "results.json").read_bytes() == (finished.path / "results.json").read_bytes()
        assert [effect[:2] for effect in again.effects()] == [effect[:2] for effect in finished.effects()]
        assert PretendedSandbox.tested == tested

    @pytest.mark.parametrize("share", [0.1, 0.6])
    def test_broken_off_and_resumed_it_ends_the_same(
        self, finished: Run, arguments: tuple[str, ...], tmp_path: Path, share: float
    ) -> None:
        broken = self.run(tmp_path / "run", arguments, breaks_after=int(share * len(finished.asked)))
        assert broken.outcome.status == "failed"
        assert isinstance(broken.outcome.error, EngineError)
        before = broken.effects()
        tested = PretendedSandbox.tested
        resumed = self.run(tmp_path / "run", arguments)
        assert resumed.outcome == Outcome("completed")
        assert resumed.files() == finished.files()
        assert resumed.results_without_times() == finished.results_without_times()
        # what was recorded stands as it was, and the engine and the sandbox were asked for the rest only
        after = {effect[0]: effect for effect in resumed.effects()}
        assert [after[effect[0]] for effect in before] == before
        asked_before = sum(effect[3] is not None for effect in before)
        assert len(resumed.asked) == len(resumed.calls()) - asked_before
        if not self.real_sandbox:
            programs = len(before) - asked_before
            assert PretendedSandbox.tested - tested == len(after) - len(resumed.calls()) - programs

    @pytest.mark.parametrize("key", ["calls", "calls_per_problem"])
    def test_a_budget_is_kept(self, finished: Run, arguments: tuple[str, ...], tmp_path: Path, key: str) -> None:
        problems = len(finished.records("problems"))
        whole = max(problems, 2 * len(finished.asked) // 3)
        limit = whole if key == "calls" else max(1, whole // problems)
        run = self.run(tmp_path / "run", arguments, {f"budget.{key}": limit})
        assert len(run.asked) == len(run.calls())
        assert len(run.asked) <= (limit if key == "calls" else limit * problems)
        if isinstance(run.outcome.error, ConfigError):  # a method may refuse what it can do nothing with
            assert not run.asked
            assert "\n" not in str(run.outcome.error)
            return
        assert run.outcome == Outcome("completed")
        costs = [sum(spent["calls"] for spent in p["cost"].values()) for p in run.records("predictions")]
        assert sum(costs) == len(run.asked)
        if key == "calls_per_problem":
            assert max(costs) <= limit
