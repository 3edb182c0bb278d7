"""The runs that the net is made of, and the real program that carries them out in this process."""

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from evorun.cli import main
from evorun.models.base import Reply, Request
from evorun.simulation.engine import SimulatedModel

_METHODS: dict[str, tuple[str, ...]] = {
    "zero_shot": (),
    "few_shot": ("method.shots=2",),
    "self_consistency": ("method.samples=4",),
    "v1_infer": ("method.samples=4", "method.comparisons=6"),
    "deepconf": (
        *("method.samples=7", "method.mode=online", "method.warmup=3", "method.batch=2", "method.window=16"),
        "method.keep=0.5",
    ),
    "ab_mcts": ("method.nodes=7", "method.batch=3"),
    "rsa": ("method.population=4", "method.subset=2", "method.steps=3"),
    "pdr": ("method.drafts=[3,2,1]",),
    "squeeze_evolve": ("method.population=4", "method.groups=3", "method.subset=2", "method.steps=3"),
    "best_of_n": ("method.samples=4", "method.rounds=3", "method.duels=3"),
    "feedback_descent": ("method.generations=3",),
    "ace": ("method.problems=3", "method.eval_every=2", "method.rounds=1"),
    "gepa": ("method.generations=3", "method.minibatch=2"),
    "lyria": ("method.population=4", "method.generations=2", "method.elites=1"),
    "duel_evolve": (
        *("method.generations=2", "method.initial_candidates=4", "method.children=3"),
        *("method.parents=2", "method.duels=3"),
    ),
}
_TASKS: dict[str, tuple[str, ...]] = {
    "mathbench": ("task.source=sample",),
    "arithmetic": (),
    "aime": ("task.source=sample",),
    "math500": ("task.source=sample",),
    "sudoku": ("task.box=2", "task.empty_cells=8"),
    "graph_coloring": (),
    "tsp": (),
    "livecodebench": ("task.source=sample",),
}
_BY_MODEL = ("method.fitness=model", "method.errors=model")
_BY_OPERATORS = (
    *("method.fitness=model", "method.crossover_rate=1"),
    *("method.external_crossover_rate=0.6", "method.external_mutation_rate=0.6"),
)
_OPTIONS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("lyria", "mathbench", "by a model", _BY_MODEL),
    ("lyria", "aime", "by a model", _BY_MODEL),
    ("lyria", "sudoku", "by a model", _BY_MODEL),
    ("lyria", "livecodebench", "by a model", _BY_MODEL),
    ("lyria", "livecodebench", "by operators", _BY_OPERATORS),
    ("lyria", "tsp", "by operators", _BY_OPERATORS),
    ("lyria", "graph_coloring", "on a budget", ("budget=lyria_5x5", "task.limit=1")),
    ("best_of_n", "sudoku", "by the oracle", ("method.choose=oracle", "method.dedup_attempts=2", "method.batches=2")),
    ("best_of_n", "livecodebench", "by the oracle", ("method.choose=oracle", "method.batches=2")),
    ("best_of_n", "mathbench", "another judge", ("judge=qwen2_5_7b", "judge_engine=simulated")),
    ("gepa", "livecodebench", "by labels", ("method.search=split",)),
    ("gepa", "mathbench", "on a budget", ("method.generations=20", "budget.calls=70")),
    ("few_shot", "mathbench", "on a budget", ("budget.calls=9",)),
    ("duel_evolve", "mathbench", "on a budget", ("method.generations=20", "budget.calls_per_problem=25")),
    ("duel_evolve", "mathbench", "run on a budget", ("method.generations=20", "budget.calls=60")),
    ("duel_evolve", "arithmetic", "each its parents", ("method.shared_parents=false", "method.deduplicate=true")),
)
"""Options of methods that show other prompts, or divide a budget: method, task, name, arguments."""

_PAIRS = [(method, task) for method in _METHODS for task in _TASKS]

_BY_DAY = {
    **{"zero_shot": "livecodebench", "few_shot": "arithmetic", "self_consistency": "aime", "v1_infer": "mathbench"},
    **{"deepconf": "sudoku", "ab_mcts": "graph_coloring", "rsa": "tsp", "pdr": "arithmetic"},
    **{"squeeze_evolve": "mathbench", "best_of_n": "mathbench", "feedback_descent": "arithmetic", "ace": "aime"},
    **{"gepa": "aime", "lyria": "sudoku", "duel_evolve": "graph_coloring"},
}
"""A task for each method. Those whose grading takes long go with methods of few calls."""

OTHER_PAIRS = frozenset(f"{method}-{task}" for method, task in _PAIRS if _BY_DAY[method] != task)
"""All pairs but those: what `make test-all` runs besides."""

RUNS: dict[str, tuple[str, ...]] = (
    {
        f"{method}-{task}": (f"method={method}", f"task={task}", *_METHODS[method], "task.limit=2", *_TASKS[task])
        for method, task in _PAIRS
    }
    | {
        f"{method}-{task}-{name.replace(' ', '_')}": (
            *(f"method={method}", f"task={task}", *_METHODS[method], "task.limit=2", *_TASKS[task]),
            *options,
        )
        for method, task, name, options in _OPTIONS
    }
    | {
        # programs alone: no other task of the net has any to begin with
        "islands-circle_packing": (
            *("method=islands", "task=circle_packing", "method.policy=shinka", "method.generations=2"),
            *("method.children=3", "method.notes_every=4", "method.paradigms=2", "method.paradigm_window=3"),
            *("method.paradigm_below=1", "engine.skill=0.5"),
        )
    }
)
"""Command lines by name; methods that train refuse the simulated engine and are not among them."""


def carry_out(arguments: tuple[str, ...], path: Path) -> list[Request]:
    """Run `evorun` with the arguments, leaving the run in `path`; return what it asked its simulated models."""
    asked: list[Request] = []
    complete = SimulatedModel.complete

    async def listening(self: SimulatedModel, request: Request) -> Reply:
        asked.append(request)
        return await complete(self, request)

    output = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(SimulatedModel, "complete", listening))
        environment = {key: value for key, value in os.environ.items() if key != "EVORUN_DATA"}
        stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", sys.argv))
        stack.enter_context(_without_report())
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(output))
        with pytest.raises(SystemExit) as end:
            main(["engine=simulated", "evorun.progress=off", *arguments, f"hydra.run.dir={path}"])
    assert end.value.code == 0, output.getvalue()
    return asked


def _without_report() -> Any:
    """Leave out the report's figures, which take longer than the run; no record depends on them."""
    try:
        return mock.patch("evorun.reports.html.write_report")
    except (ImportError, AttributeError):
        return contextlib.nullcontext()
