"""Small runs on simulated models, by the names that README and docs/ give to a reader's own: RUN_DIR and others."""

import contextlib
import json
from pathlib import Path

from building import load_task, simulated_run
from evorun.runs.sweeps import JobInSweep, new_sweep, write_sweep

DUELS = ("method=duel_evolve", "task=mathbench", "task.source=sample", "task.limit=3", "method.generations=1")
SMALL_DUELS = ("method.initial_candidates=3", "method.children=3", "method.duels=4")
ESPL = ("method=espl", "task=dapo_aime25", "task.source=sample", "task.limit=2", "method.steps=2", "method.group=2")
MPO = ("method=mpo", "task=essay", "task.source=sample", "task.limit=2", "method.steps=2", "method.refine_every=1")
LYRIA = ("method=lyria", "task=sudoku", "task.split=training", "task.limit=2", "method.population=4")
SWEEP = "outputs/first_sweep"
RUNS = {
    "RUN_DIR": (*DUELS, *SMALL_DUELS),
    "ESPL_RUN": (
        *ESPL,
        "method.problems_per_step=2",
        "method.eval_samples=0",
        "method.transplant=true",
        "method.root_principles=[Check it.]",
    ),
    "MPO_RUN": (*MPO, "method.problems_per_step=2", "method.refine_samples=2", "method.eval_samples=0"),
    "LYRIA_RUN": (*LYRIA, "method.generations=1"),
    "outputs/first_sweep/duels": (*DUELS, *SMALL_DUELS, "seed=1"),
    "outputs/first_sweep/zero": ("method=zero_shot", *DUELS[1:4], "seed=1"),
}


def prepare(folder: Path, *names: str) -> None:
    """Make some of `RUNS` in a folder."""
    for name in names:
        simulated_run(folder / name, *RUNS[name])
    jobs = [
        JobInSweep(Path(name).name, ("engine=simulated", "evorun.progress=off", *RUNS[name]))
        for name in names
        if name.startswith(SWEEP)
    ]
    if jobs:
        with contextlib.chdir(folder):  # where its command was given
            write_sweep(Path(SWEEP), new_sweep(["evorun", "-m", "engine=simulated"], "basic", jobs))


def write_responses(file: Path, task: str) -> None:
    """Write a response to the first problem of a task's sample."""
    problem = load_task(task, source="sample").problems[0]
    file.write_text(json.dumps({"id": problem.id, "response": "Answer: A"}) + "\n")
