"""Lyria's own speed: exact solvers, instances, metrics and operators, and a generation without the model's time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice, pairwise
from typing import Any

import numpy as np

from evorun.cli.compose import default_config
from evorun.methods.context import Context
from evorun.methods.lyria.lyria import Lyria
from evorun.models import Completion, Reply, Request
from evorun.rollouts.calls import Caller
from evorun.runs.budget import Meter
from evorun.runs.candidates import Response
from evorun.runs.streams import stream
from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.capabilities import Individual
from evorun.tasks.puzzles.instances import PuzzleConfig
from evorun.tasks.puzzles.puzzle import Puzzle
from evorun_bench import Row

CALLS_PER_S = 20_000
PUZZLES = ("sudoku", "graph_coloring", "tsp")
TINY = {"population": 6, "generations": 1, "instances": 1, "answers": 6, "rounds": 1}


def measure(
    population: int = 50, generations: int = 5, instances: int = 10, answers: int = 40, rounds: int = 5
) -> list[Row]:
    """Measure generations of the paper's size, and operators on so many answers to each instance of a puzzle.

    Each figure is the best of so many rounds: other processes only ever make one slower.
    """
    rows = [_optimum(instances, rounds), _sudokus(instances, rounds)]
    for name in PUZZLES:
        rows += _calls(default_config("task", name, limit=instances), answers, rounds)
    for name in PUZZLES:
        rows.append(_generation(default_config("task", name, limit=1), population, generations, rounds))
    return rows


def _best(rounds: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest round."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _optimum(instances: int, rounds: int) -> Row:
    from evorun.tasks.tsp.solver import optimal_route

    rng = np.random.default_rng(0)
    cities = [rng.uniform(0, 100, (10, 2)) for _ in range(2 * instances)]
    matrices = [np.linalg.norm(c[:, None] - c, axis=2).round(2).tolist() for c in cities]
    ms = 1000 * _best(rounds, lambda: [optimal_route(matrix) for matrix in matrices]) / len(matrices)
    return Row("TSP: optimum of 10 cities", ms, "ms", "<= 2", ms <= 2)


def _sudokus(instances: int, rounds: int) -> Row:
    config = default_config("task", "sudoku")
    numbers = iter(range(10**6))

    def draw() -> None:
        drawn = (config.draft(stream(1, "bench", number)).finish() for number in numbers)
        list(islice((puzzle for puzzle in drawn if puzzle is not None), instances))

    rate = instances / _best(rounds, draw)
    return Row("Sudoku: unique puzzles with 40 empty cells", rate, "puzzles/s", ">= 20", rate >= 20)


def _calls(config: PuzzleConfig, answers: int, rounds: int) -> list[Row]:
    """Measure metrics and operators on answers as a model of middling skill gives them."""
    loaded = config.load()
    task = loaded.task
    assert isinstance(task, Puzzle)  # noqa: S101 - for the type checker
    known = _answers(loaded, answers)
    individuals = [
        (problem, Individual(response=response, fitness=found.fitness, errors=found.errors))
        for problem, response in known
        for found in [task.verified(problem, response, 3)]
    ]
    rng = np.random.default_rng(0)
    pairs = list(pairwise(individuals))
    work: dict[str, Callable[[], object]] = {
        "metrics": lambda: [task.measure(problem, response.answer) for problem, response in known],
        "crossover": lambda: [task.crossover(p, a, b, rng) for (p, a), (q, b) in pairs if p is q],  # type: ignore[attr-defined]
        "mutation": lambda: [task.mutate(problem, individual, rng) for problem, individual in individuals],  # type: ignore[attr-defined]
    }
    sizes = {"metrics": len(known), "crossover": sum(p is q for (p, _), (q, _) in pairs), "mutation": len(individuals)}
    rates = {name: sizes[name] / _best(rounds, calls) for name, calls in work.items()}
    return [
        Row(f"{config.name}: {name}", rate, "calls/s", f">= {CALLS_PER_S}", rate >= CALLS_PER_S)
        for name, rate in rates.items()
    ]


def _answers(loaded: LoadedTask, number: int) -> list[tuple[Problem, Response]]:
    """Return each problem with so many different answers of the simulated model, problem by problem."""
    rng = np.random.default_rng(0)
    found = []
    for problem in loaded.problems:
        prompt = loaded.task.generation_prompt(problem)  # type: ignore[attr-defined]
        request = Request(messages=prompt.messages, seed=0, hints=prompt.hints)
        texts = (loaded.simulator.respond(request, rng) for _ in cycle([0]))
        readable = (response for text in texts if (response := loaded.task.parse(problem, text)).answer is not None)
        found += [(problem, response) for response in islice(readable, number)]
    return found


class _Instant(Caller):
    """A model that answers at once, with texts made beforehand."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = cycle(texts)

    async def complete(self, key: str, request: Request, step: int) -> Reply:
        done = Completion(text=next(self._texts), finish_reason="stop", tokens=100)
        return Reply(completions=(done,), prompt_tokens=100, seconds=0.0)


async def _no_journal(key: str, inputs: bytes, compute: Any, kind: Any) -> Any:
    return await compute()


class _NoTools:
    async def test(self, *_: object, **__: object) -> None:
        raise AssertionError("puzzles run no programs")


def _generation(config: PuzzleConfig, population: int, generations: int, rounds: int) -> Row:
    """Measure a generation: prompts, reading, metrics, operators, selection; all but the model's time."""
    loaded = config.load()
    texts = [response.text for _, response in _answers(loaded, 40 * population)]
    sizes = {"population": population, "generations": generations, "elites": population // 10}
    method = Lyria(default_config("method", "lyria", **sizes))

    def solve() -> int:
        context = Context(
            task=loaded.task,
            problem=loaded.problems[0],
            seed=0,
            meter=Meter(),
            models=dict.fromkeys(("policy", "judge"), _Instant(texts)),
            roles=method.roles,
            remember=_no_journal,
            tools=_NoTools(),  # type: ignore[arg-type]
        )
        return asyncio.run(_steps(method, context))

    steps = solve()
    ms = 1000 * _best(rounds, solve) / steps
    return Row(f"{config.name}: a generation of {population}, without the model", ms, "ms", "<= 30", ms <= 30)


async def _steps(method: Lyria, context: Context) -> int:
    return len([step async for step in method.solve(context)])
