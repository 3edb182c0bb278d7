"""Recorded opinions given again by another judge, rubric or grader: what all three kinds share.

A run's texts come from its records and its journal; no request to generate a text is sent.
"""

import asyncio
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from evorun.errors import ConfigError
from evorun.methods.context import Context
from evorun.models.config import ServedModel
from evorun.rollouts.calls import Role
from evorun.runner.driver import first_error
from evorun.runner.gold import MethodTools
from evorun.runner.run_study import RunStudy
from evorun.runner.served import find_engine_key, in_manifest
from evorun.runner.settings import RunConfig, check
from evorun.runner.task_loading import load_task
from evorun.runner.work import Effects
from evorun.runs.budget import Meter
from evorun.runs.directory import RunDirectory, identity, iterate_differences
from evorun.runs.formats import format_dollars
from evorun.runs.manifest import PluginInRun
from evorun.runs.paths import display
from evorun.runs.prices import to_dollars
from evorun.runs.reading import read_results
from evorun.runs.records import write_json
from evorun.runs.reselected import drop_intervals
from evorun.runs.schema import Spent
from evorun.runs.studies import FIGURES, REJUDGED, Opinions, RejudgedFigure, RejudgeManifest, load_figures, load_rejudge
from evorun.runs.terminal import Terminal
from evorun.tasks.base import LoadedTask, Problem

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 512
"""Opinions asked for at once (ours): a budget of tokens is checked between such batches."""


_SAME_MODEL: Mapping[Opinions, str] = {
    "duels": "All verdicts are the recorded ones, since a simulated judge is the same whatever its name: "
    "judge_engine.judge_skill=0.9, say, makes another",
    "rewards": "All rewards are the recorded ones, since a simulated reward model is the same whatever its name: "
    "reward_engine.reward_noise=0.3, say, makes another",
    "grades": "All grades are the recorded ones, since a simulated gold judge is the same whatever its name; a setting "
    "of gold_engine makes another",
}
"""Remarks on opinions by the same simulated model."""


class MostCalls(NamedTuple):
    """The most calls that each model of a study may answer."""

    calls: int
    max_tokens: int
    """Completion tokens of a call."""
    roles: Collection[str]
    """Call roles in which the run asked for opinions of the kind."""


class Rejudging(RunStudy):
    """A rejudging of one run."""

    verb = REJUDGED.removesuffix(".json")
    manifest_class = RejudgeManifest
    kind: ClassVar[Opinions]
    command: ClassVar[str] = "rejudge"
    """The verb that begins it."""

    def __init__(
        self,
        run: Path,
        config: Mapping[str, Any],
        console: Terminal,
        *,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        max_price: float | None = None,
    ) -> None:
        """config: that of the run with another judge, rubric or grader. Raises as `RunStudy`.

        max_price: dollars; `rejudge` refuses what may cost more before it begins.
        """
        super().__init__(run, config, console)
        self._meter, self._max_price = Meter(max_calls, max_tokens), max_price
        self._own_settings: dict[str, Any] = {"max_calls": max_calls, "max_tokens": max_tokens}
        """Arguments of the constructor beside the configuration."""
        self._loaded: LoadedTask = load_task(self._checked.task)
        self._plugins: Mapping[str, PluginInRun] = {}
        """Those whose code gives the opinions."""
        self._skipped = 0
        """Opinions that the budget did not allow."""
        self._all_equal = False
        """True where all opinions are the recorded ones."""
        self._dueled: tuple[int, int] | None = None
        """Of choices from a run with duels: all candidates, and those in no duel."""

    @abstractmethod
    def _models(self) -> dict[str, ServedModel]:
        """Return the models to ask, by role."""

    @abstractmethod
    def _count_calls(self) -> MostCalls:
        """Return the most calls that all opinions take."""

    @abstractmethod
    def _decides(self) -> dict[str, Any]:
        """Return all that decides the opinions, apart from the models."""

    @abstractmethod
    async def _judge(self, directory: RunDirectory, effects: Effects) -> list[RejudgedFigure]:
        """Give the opinions, write their records, say whether all equal the recorded ones, and return their figures."""

    def rejudge(self, command: Sequence[str] = (), resumed: Path | None = None) -> list[RejudgedFigure]:
        """Give all opinions that the budget allows, write them to the study's folder and return the figures.

        A larger budget continues the study. command, resumed: see `RunStudy`. Raises as `RunStudy._carry_out`, and
        ConfigError for one that may cost more than it is allowed.
        """
        self._require_price()
        served = self._models()
        models = {role: in_manifest(model) for role, model in served.items()}
        self._carry_out(
            {
                "kind": self.kind,
                "models": {role: _identify(model) for role, model in served.items()},
                "seed": self._checked.seed,
                **self._decides(),
            },
            served,
            self._loaded,
            self._write,
            command=command,
            settings=self._own_settings,
            resumed=resumed,
            kind=self.kind,
            models=models,
            changes=self._list_changes(),
            plugins=self._plugins,
        )
        manifest = load_rejudge(self.folder)
        if self._skipped:
            manifest.ended_early = (
                f"the budget left {self._skipped:,} opinions out; the same command with a larger one goes on"
            )
        if self._all_equal and served and all(self._list_simulated_changes(role) == {} for role in served):
            manifest.remark = _SAME_MODEL[self.kind]
        if self._dueled is not None:
            manifest.candidates, manifest.without_duel = self._dueled
        write_json(self.folder / REJUDGED, manifest)
        return load_figures(self.folder)

    @cached_property
    def _price(self) -> float | Literal["unknown"] | None:
        """The most that the opinions may cost in dollars; None where no vendor bills them.

        Prompts are as long as those by which the run asked for its own opinions, completions as long as they may be.
        """
        billed = [served for served in self._models().values() if served.engine.billed]
        if not billed:
            return None
        most, results = self._count_calls(), read_results(self._run)
        recorded = (
            [spent for role, spent in results.cost.items() if role.partition(".")[0] in most.roles] if results else []
        )
        asked = sum(spent.calls for spent in recorded)
        rates = [self._checked.prices.models.get(served.model.id) for served in billed]
        if not asked or None in rates:
            return "unknown"
        calls = min(most.calls, self._meter.max_calls or most.calls)
        prompt = calls * sum(spent.prompt_tokens for spent in recorded) / asked
        spent = Spent(calls, ceil(prompt), calls * most.max_tokens)
        return sum(to_dollars(rate.of(spent)) or 0.0 for rate in rates if rate is not None)

    @cached_property
    def _roles(self) -> dict[str, Role]:
        """The call roles of the models to ask, each answered by its own model."""
        return {role: Role(role) for role in self._models()}

    def _make_context(
        self, problem: Problem, meter: Meter, directory: RunDirectory, effects: Effects, *, name: str | None = None
    ) -> Context:
        """Return the context in which the models of the study are asked about a problem. name: see `Context`."""
        return Context(
            task=self._loaded.task,
            problem=problem,
            name=name,
            seed=self._checked.seed,
            meter=meter,
            models=effects.models,
            roles=self._roles,
            remember=directory.journal.remember,
            tools=MethodTools(effects.tests),
        )

    def _require_price(self) -> None:
        """Raise ConfigError where the opinions may cost more than is allowed, or an unknown amount."""
        price = self._price
        if self._max_price is None or price is None or (price != "unknown" and price <= self._max_price):
            return
        most = format_dollars(self._max_price)
        if price == "unknown":
            raise ConfigError(
                f"--max-price: expected at most {most}, the price of these opinions is unknown; see prices=FILE"
            )
        raise ConfigError(
            f"--max-price: expected at most {most}, these opinions may cost {format_dollars(price)}; raise it, or set "
            "budget.calls"
        )

    def _list_changes(self) -> list[str]:
        """Return the settings that are not the run's; of a model that was chosen anew, its name alone.

        Of a simulated one also what makes it another: its name does not.
        """
        differences = {
            key: now
            for key, _, now in iterate_differences(identity(self._manifest.config), identity(self._config))
            if not isinstance(now, Mapping)
        }
        named = {key.removesuffix("name") for key in differences if key.endswith(".name")}
        changes = [
            f"{key.removesuffix('.name')}={now}"
            for key, now in differences.items()
            if key.endswith(".name") or not key.startswith(tuple(named))
        ]
        for role in self._models():
            engine_key = find_engine_key(self._config, role)
            changes += [f"{engine_key}.{key}={now}" for key, now in (self._list_simulated_changes(role) or {}).items()]
        return list(dict.fromkeys(changes))

    @cached_property
    def _recorded(self) -> RunConfig:
        return check(self._manifest.config)

    def _list_simulated_changes(self, role: str) -> dict[str, Any] | None:
        """Return the settings by which a role's simulated model answers otherwise than the recorded one.

        None where either is not simulated, or answers at random, and where a panel stands for a judge or the reverse.
        """
        recorded, panel = self._recorded, self._checked.panel
        if bool(recorded.panel) != bool(panel) or (panel and role not in recorded.panel):
            return None
        own = {**recorded.others, **recorded.panel}.get(role) or ServedModel(recorded.model, recorded.engine)
        both = own, self._models()[role]
        if not all(served.engine.simulated and not served.model.random for served in both):
            return None
        before, now = (served.engine.judge_identity(served.model) for served in both)
        return {key: value for key, value in now.items() if before.get(key) != value}

    def _announce(self, what: str) -> None:
        """Print what will be asked for, and by whom it will be answered."""
        by = ", ".join(dict.fromkeys(in_manifest(model).short for model in self._models().values()))
        price = self._price
        cost = (
            "" if price is None else f", price {price}" if price == "unknown" else f", at most {format_dollars(price)}"
        )
        self._console.print(f"{self.command}: {what}{f', by {by}' if by else ''}{cost}", soft_wrap=True)

    async def _write(self, directory: RunDirectory, effects: Effects) -> None:
        write_json(
            directory.path / FIGURES, [drop_intervals(figure) for figure in await self._judge(directory, effects)]
        )

    async def _ask_all(
        self,
        items: Sequence[T],
        problem_of: Callable[[T], str],
        calls: int,
        role: str,
        ask: Callable[[T], Coroutine[Any, Any, R]],
        charge: Callable[[T], None],
    ) -> list[R | None]:
        """Return the opinions on the items, None for one that the budget does not allow.

        A budget is spent on the problems in turn. calls: the maximum per item. charge: counts what an item has cost, in
        the order of asking.
        """
        order = take_turns([problem_of(item) for item in items])
        found: dict[int, R] = {}
        for start in range(0, len(items), AT_ONCE):
            batch = order[start : start + AT_ONCE]
            # Admitted in order and before any call, so that a resumed study cuts off the same items.
            allowed = batch[: self._meter.admit(calls * len(batch), role) // calls] if calls else batch
            try:
                async with asyncio.TaskGroup() as group:
                    asked = [group.create_task(ask(items[place])) for place in allowed]
            except BaseExceptionGroup as errors:
                raise first_error(errors) from None
            found |= {place: task.result() for place, task in zip(allowed, asked, strict=True)}
            for place in allowed:
                charge(items[place])
            if len(allowed) < len(batch):
                break
        self._skipped += len(items) - len(found)
        if self._skipped:
            self._console.print(
                f"the budget allows {len(found):,} of {len(items):,}; {display(self.folder)} goes on with a larger one",
                soft_wrap=True,
            )
        return [found.get(place) for place in range(len(items))]


def _identify(served: ServedModel) -> Any:
    """Return what a model's answers depend on, with the name that they have in a journal."""
    name, decisive = served.engine.journal_name(served.model), served.engine.judge_identity(served.model)
    return name if decisive == name else [name, decisive]


def take_turns(problems: Sequence[str]) -> list[int]:
    """Return the places of all items, given by their problems: each problem's first item, each one's second, ..."""
    turns = Counter[str]()
    turn_of = []
    for problem in problems:
        turn_of.append(turns[problem])
        turns[problem] += 1
    return sorted(range(len(problems)), key=turn_of.__getitem__)
