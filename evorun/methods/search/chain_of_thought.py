"""Chain of thought without evolution: one response, one response after solved examples, or a vote of several.

`zero_shot`, `few_shot` and `self_consistency` (Duel-Evolve paper, section 4.2 and appendix D). Examples are drawn once
from the validation split and shown with every problem. The split has answers but no reasoning, so an example's
reasoning comes from a file, or from the model's own response if it is graded correct. The budget for a response to each
problem is never spent on examples.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from evorun.errors import ConfigError, DataError
from evorun.fields import PositiveInt
from evorun.methods.base import PerProblem
from evorun.methods.context import Context, RunContext
from evorun.methods.search.proposals import Proposal, Proposed, ResponseSettings, SampleSettings, draw, propose
from evorun.rollouts.episodes import Asked, max_turns_on
from evorun.rollouts.responses import respond
from evorun.runs.candidates import Response, Step
from evorun.runs.scores import primary_score
from evorun.tasks.base import Demonstration, Problem, Task
from evorun.tasks.capabilities import SupportsDemonstrations, SupportsGeneration


@dataclass(kw_only=True)
class ZeroShotConfig(ResponseSettings):
    """Hyperparameters; `conf/method/zero_shot.yaml` gives each default and its source."""

    name: str


class ZeroShot(PerProblem):
    """Answers each problem once."""

    name = "zero_shot"
    description = "one chain-of-thought response"
    regime = "problem_only"
    needs = (SupportsGeneration,)
    last_step = 0
    Config = ZeroShotConfig
    config: ZeroShotConfig

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Ask for one response, with retries for an unparsed one."""
        proposal = Proposal(ctx.task.generation_prompt(ctx.problem), ())
        yield make_only_step(await propose(ctx, [proposal], operator="init", step=0, settings=self.config))


def make_only_step(proposed: Proposed) -> Step:
    """Return the only step of a method that draws one response."""
    survivors = [replace(candidate, survivor=True) for candidate in proposed.parsed]
    return Step(
        step=0,
        best=survivors[0] if survivors else None,
        candidates=[*survivors, *proposed.unparsed],
        extra=proposed.diagnostics(),
    )


log = logging.getLogger(__name__)

ROLE = "demonstrate"
"""Role of the calls that solve examples."""


@dataclass(kw_only=True)
class FewShotConfig(ResponseSettings):
    """Hyperparameters; `conf/method/few_shot.yaml` gives each default and its source."""

    name: str
    shots: PositiveInt
    """k: examples in the prompt."""
    demonstrations: str | None
    """File of worked examples, `{"id": ..., "response": ...}` per line with ids of the validation split; null: the
    model solves them."""
    tries: PositiveInt
    """Maximum attempts of the model to solve an example."""


class WorkedExample(msgspec.Struct, frozen=True):
    """A line of the demonstrations file."""

    id: str
    response: str
    """A response in the task's own format."""


class FewShot(PerProblem):
    """Answers each problem once, after the same worked examples."""

    name = "few_shot"
    description = "one chain-of-thought response after k worked examples of the validation split"
    regime = "demonstrations"
    needs = (SupportsGeneration, SupportsDemonstrations)
    last_step = 0
    Config = FewShotConfig
    config: FewShotConfig

    def __init__(self, config: FewShotConfig) -> None:
        super().__init__(config)
        self._worked: list[Demonstration] = []

    def incompatibility(self, task: type[Task]) -> str | None:
        if primary_score(task.scores).rate:
            return None
        return f"task={task.name} has no right and wrong, by which few_shot chooses its examples; choose another method"

    def check(self, task: type[Task], validation: Sequence[Problem]) -> None:
        """Raise ConfigError or DataError if the validation split or the demonstrations file has too few examples.

        Only the run checks whether the file's responses are correct.
        """
        shots = self.config.shots
        if len(validation) < shots:
            raise ConfigError(
                f"method.shots: expected a validation split of at least {shots} problems, it has {len(validation)}; "
                f"{task.draw_help.more_validation} or lower method.shots"
            )
        if self.config.demonstrations is not None:
            known = {problem.id for problem in validation}
            # Responses are graded only in the run, which has the tools; ids can be checked now.
            matching = sum(example.id in known for example in read_examples(self.config.demonstrations))
            if matching < shots:
                raise _too_few(self.config, "", matching, [problem.id for problem in validation])

    async def prepare(self, ctx: RunContext) -> None:
        """Draw the examples, get their reasoning, and save them in artifacts/demonstrations.json.

        Raises ConfigError for a file with too few correct responses, and for a call budget below one call per example
        and problem. A token budget shows only after the first examples that it is too small; problems left without an
        answer then have stop `budget`.
        """
        # A single order for the run, so that every problem sees the same examples.
        order = ctx.shared.rng("demonstrations").permutation(len(ctx.demonstrations))
        drawn = [ctx.demonstrations[i] for i in order]
        file = self.config.demonstrations
        self._worked = await (self._from_model(ctx, drawn) if file is None else self._from_file(ctx, drawn, file))
        ctx.save_artifact("demonstrations.json", self._worked)

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Ask for one response, with retries for an unparsed one."""
        proposal = Proposal(ctx.task.few_shot_prompt(ctx.problem, self._worked), ())
        step = make_only_step(await propose(ctx, [proposal], operator="init", step=0, settings=self.config))
        step.extra["demonstrations"] = len(self._worked)
        yield step

    async def _from_file(self, ctx: RunContext, drawn: Sequence[Demonstration], path: str) -> list[Demonstration]:
        responses = {example.id: example.response for example in read_examples(path)}
        worked: list[Demonstration] = []
        for example in drawn:
            if example.problem.id in responses and len(worked) < self.config.shots:
                response = ctx.shared.task.parse(example.problem, responses[example.problem.id])
                worked += await self._solve_if_right(ctx, example, response)
        if len(worked) < self.config.shots:
            raise _too_few(self.config, "correct ", len(worked), [example.problem.id for example in drawn])
        return worked

    async def _from_model(self, ctx: RunContext, drawn: Sequence[Demonstration]) -> list[Demonstration]:
        """Let the model solve examples until enough are right; the first ones in order are kept.

        Each attempt takes `shots` examples at a time until there are enough. So a large split costs no more than
        necessary, and the cost of a call is known before most calls are made. A token budget that covers the first
        batch and an answer per problem then leaves enough for these answers.
        """
        shots = self.config.shots
        # `shared` reserves a response per problem, so this counts the calls left for examples.
        needed = sum(max_turns_on(ctx.shared.task, example.problem) for example in drawn[:shots])
        if (affordable := ctx.shared.affordable(needed, ROLE)) < needed:
            raise ConfigError(
                f"budget: expected at least {needed} calls for the examples (method.shots) beside a response to each "
                f"problem, got {affordable}; raise the budget, lower method.shots or give method.demonstrations"
            )
        worked: dict[int, Demonstration] = {}
        batches = [range(start, min(start + shots, len(drawn))) for start in range(0, len(drawn), shots)]
        for attempt, indices in product(range(self.config.tries), batches):
            missing = [i for i in indices if i not in worked]
            prompt = ctx.shared.task.generation_prompt
            episodes = await respond(
                ctx.shared,
                [Asked(drawn[i].problem, prompt(drawn[i].problem)) for i in missing],
                role=ROLE,
                step=0,
                sampling=self.config.sampling,
                attempt=attempt,
                indices=missing,
            )
            for i, episode in zip(missing, episodes, strict=False):  # the budget may leave fewer
                for example in await self._solve_if_right(ctx, drawn[i], episode.response):
                    worked[i] = example
            if len(worked) >= shots or ctx.shared.out_of_budget:
                break
        if len(worked) < shots:
            # Fewer examples weaken the baseline; the run continues, and each step records their number.
            limit = "within the budget" if ctx.shared.out_of_budget else f"in {self.config.tries} tries"
            counts = (len(worked), len(drawn), limit, shots)
            log.warning("few_shot: the model solved %d of %d examples %s, expected %d; continuing with these", *counts)
        return [worked[i] for i in sorted(worked)][:shots]

    @staticmethod
    async def _solve_if_right(ctx: RunContext, example: Demonstration, response: Response) -> list[Demonstration]:
        """Return the example with this response as its solution, or an empty list if it is wrong."""
        if response.answer is None:  # no need to grade it
            return []
        right = primary_score(ctx.shared.task.scores).value_in(await ctx.grade(example, response))
        return [ctx.shared.task.demonstration(example, response)] if right else []


def _too_few(config: FewShotConfig, kind: str, count: int, ids: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"method.demonstrations: expected {config.shots} {kind}responses to problems of the validation split in "
        f"{config.demonstrations}, found {count}; the split's ids are: {', '.join(ids) or 'none'}"
    )


def read_examples(path: str) -> list[WorkedExample]:
    """Read a demonstrations file with distinct ids. Raises ConfigError or DataError, naming the line."""
    try:
        lines = Path(path).expanduser().read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"method.demonstrations: cannot read {path}: {error.strerror}") from error
    decoder = msgspec.json.Decoder(WorkedExample)
    examples: list[WorkedExample] = []
    lines_by_id: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            example = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f'{path}:{number}: expected {{"id": "...", "response": "..."}}: {error}') from error
        if lines_by_id.setdefault(example.id, number) != number:
            raise DataError(
                f"{path}:{number}: expected distinct ids, got {example.id!r} as on line {lines_by_id[example.id]}; "
                "delete one of the two"
            )
        examples.append(example)
    return examples


@dataclass(kw_only=True)
class SelfConsistencyConfig(SampleSettings):
    """Hyperparameters; `conf/method/self_consistency.yaml` gives each default and its source."""

    name: str


class SelfConsistency(PerProblem):
    """Draws responses and returns one with the most frequent answer."""

    name = "self_consistency"
    description = "N independent responses, the most frequent answer"
    regime = "problem_only"
    needs = (SupportsGeneration,)
    last_step = 0
    votes = True
    Config = SelfConsistencyConfig
    config: SelfConsistencyConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"samples": self.config.samples}

    def incompatibility(self, task: type[Task]) -> str | None:
        if task.free_text:
            return (
                f"votes on answers, and no two texts of task={task.name} are the same; expected method=best_of_n, "
                "whose judge chooses one, or another task"
            )
        return None

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw all responses and let them vote; a candidate's mean is its answer's share of the votes."""
        proposed = await draw(ctx, self.config)
        # Signatures, not texts: two notations of an answer count as the same vote.
        ballots = [ctx.task.signature(ctx.problem, candidate) for candidate in proposed.parsed]
        votes = Counter(ballots)
        rated = [
            replace(candidate, mean=votes[ballot] / len(ballots), survivor=True)
            for candidate, ballot in zip(proposed.parsed, ballots, strict=True)
        ]
        winner = majority(ballots, ctx.rng("ties"))
        yield Step(
            step=0,
            best=None if winner is None else rated[winner],
            candidates=[*rated, *proposed.unparsed],
            extra=proposed.diagnostics() | {"distinct_answers": len(votes)},
        )


def majority(ballots: Sequence[str], rng: np.random.Generator) -> int | None:
    """Return the index of the first ballot with the most frequent answer; ties are broken at random."""
    if not ballots:
        return None
    # A Counter keeps the order of first appearance, so the draw among leaders is the same on a resume.
    votes = Counter(ballots)
    max_votes = max(votes.values())
    leaders = [answer for answer, count in votes.items() if count == max_votes]
    return ballots.index(leaders[int(rng.integers(len(leaders)))])
