"""The page of scores and figures: unit, range, direction and origin of each name that runs record and reports print."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

from evorun.runner import registry
from evorun.runs.results import TRAINING_PREFIX
from evorun.runs.scores import ACCURACY, Score, mean_of_samples
from evorun.runs.selection import SEARCH_PREFIX
from reference.markdown import code, lines, prose, table

SECTIONS = {
    "results": (
        "Figures of results.json",
        "Shares carry a 95 % interval over problems, and n: Wilson's of single trials, else a bootstrap.",
    ),
    "counts": ("Counts", "`counts` of results.json; those of texts are in `extra` of steps.jsonl too."),
    "steps": ("Diagnostics of steps", "`extra` of steps.jsonl. metrics.jsonl has their means over the problems."),
    "search": (
        "Selection along a search",
        f"Series of metrics.jsonl; their names begin with `{SEARCH_PREFIX}`. Runs that train have none.",
    ),
    "training": (
        "Figures of training steps",
        f"`figures` of training.jsonl; as series of metrics.jsonl their names begin with `{TRAINING_PREFIX}`.",
    ),
    "speed": (
        "Speed of training steps",
        "`figures` of speed.jsonl. They differ on every repetition, and no comparison of records reads them.",
    ),
    "comparisons": ("Figures of comparisons and tournaments", "What pages of several runs add."),
}
OF_SAMPLES = "Mean of the primary score over a problem's samples."
DIRECTIONS = {"higher": "higher is better", "lower": "lower is better", None: ""}


HEAD = """
# Scores and figures

A figure without a direction is neither good nor bad by itself. [Reading a report](../guides/report.md) says what to
make of them.

## Scores of tasks

A task's first score is its primary one, which tables and curves show. `results.json` has the mean of each, over all
problems and by stratum. `metrics.jsonl` has them by step; `SCORE/STRATUM` is the primary score of one stratum.
"""


def scores_page() -> str:
    """Return the page in Markdown."""
    parts = [
        HEAD,
        _scores_table(),
    ]
    for section, (title, about) in SECTIONS.items():
        rows = (
            (code(name), _scale(one), lines(one["meaning"], code(one["where"])))
            for name, one in read_figures()[section].items()
        )
        parts += [f"## {title}\n", f"{about}\n", table(("name", "unit, range, direction", "meaning, origin"), rows)]
    return "\n".join(parts)


@cache
def read_figures() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return the entries of figures.yaml, by section and name."""
    found: Mapping[str, Mapping[str, Mapping[str, str]]] = yaml.safe_load(
        Path(__file__).with_name("figures.yaml").read_text()
    )
    return found


def list_scores() -> dict[Score, list[str]]:
    """Return the scores that tasks declare, and the means over samples of primary ones, each with its tasks."""
    found: dict[Score, list[str]] = {}
    sampled: dict[Score, list[str]] = {}
    for name in sorted(registry.TASKS):
        declared = registry.task_config_class(name).task_class.scores
        for score in declared:
            found.setdefault(score, []).append(name)
        sampled.setdefault(mean_of_samples(declared[0]), []).append(name)
    return {**found, **sampled}


def _scores_table() -> str:
    rows = []
    for score, tasks in list_scores().items():
        given = _describe_score(score)
        bounds = {"range": _write_range(score.low, score.high)}
        scale = _scale({**given, **bounds, "better": "higher" if score.higher_is_better else "lower"})
        of_tasks = ", ".join(map(code, tasks))
        if len(tasks) > len(registry.TASKS) // 2:
            of_tasks = f"all but {', '.join(map(code, sorted(registry.TASKS.keys() - set(tasks))))}"
        rows.append((code(score.name), scale, prose(given["meaning"]), of_tasks))
    return table(("score", "unit, range, direction", "meaning", "tasks"), rows)


def _describe_score(score: Score) -> Mapping[str, str]:
    """Return unit and meaning of a score; a mean over samples has the unit of its samples."""
    meanings = read_figures()["scores"]
    if score.name in meanings:
        return meanings[score.name]
    # the mean of `accuracy` is named `pass_rate`
    of_one = meanings.get(score.name.removeprefix("mean_"), meanings[ACCURACY.name])
    return {"unit": of_one["unit"], "meaning": OF_SAMPLES}


def _write_range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "any number"
    if low is None or high is None:
        return f"<= {high:g}" if low is None else f">= {low:g}"
    return f"{low:g} to {high:g}"


def _scale(figure: Mapping[str, str]) -> str:
    """Return unit, range and direction, as far as a figure has them."""
    parts = figure.get("unit"), figure.get("range"), DIRECTIONS[figure.get("better")]
    return "; ".join(filter(None, parts))
