"""The page of the data frames of runs and of comparisons: each column with its type, unit and meaning."""

import re
from collections.abc import Iterator, Mapping

from evorun.api.frames import list_leaves
from evorun.api.runs import FrameOf, Frames, Runs
from reference.markdown import code, prose, table
from reference.records import describe_meaning, list_columns, read_given
from reference.sources import read_docstrings

HEAD = """
# Data frames, column by column

`evorun.load` returns runs, whose methods return these data frames ([the guide](../guides/python.md)). Their columns are
the fields of a run's records:

- a field within an object has a dot: `best.answer`;
- `NAME` stands for each key of an object: `scores.rubric`, `cost.judge.calls`;
- an interval `ci95` is two columns, `low` and `high`: 95 % over the run's problems, Wilson's of a share, else a
  bootstrap (BCa). It says nothing about other seeds; for those, compare several runs;
- a list of texts is a list; in `data.NAME` a list or an object is a text in JSON;
- the unit `number` is that of a pure number, such as an index or a seed.

A value that may be missing is missing in the way of the library: `NaN` or `NA` in pandas, null in polars.
"""

OF_RUNS = """
## Columns that tell runs apart

Frames of several runs begin with these. A single run's have none.
"""

IDENTITY: Mapping[str, tuple[str, str]] = {
    "run": ("string", "The run's folder, from the folder that was loaded."),
    "method": ("string", "Name of the method."),
    "task": ("string", "Name of the task."),
    "seed": ("integer", "Seed of all of the run's random streams."),
    "GROUP.NAME": (
        "by setting",
        "A setting in which runs differ: a column for each. Those of one method, task or model count where runs with "
        "the same one differ.",
    ),
}
"""The columns of frames of several runs."""

COMPARED = """
## Frames of comparisons

`evorun.compare(...)` has the tables that `evorun report --export` writes, as `arms()`, `runs()`, `strata()`, `roles()`,
`pairs()`, `strata_pairs()` and `level_pairs()`. An arm is a method with its settings, over all its seeds. `FIGURE`
stands for each of the [scores and figures](scores.md) that a run has.
"""


def find_frames() -> dict[str, FrameOf]:
    """Return the frames of runs by the names of their methods, in order."""
    return {
        name: value for owner in (Runs, Frames) for name, value in vars(owner).items() if isinstance(value, FrameOf)
    }


def frames_page() -> str:
    """Return the page in Markdown."""
    docs = {**read_docstrings(Frames), **read_docstrings(Runs)}
    identity = ((code(name), kind, prose(meaning)) for name, (kind, meaning) in IDENTITY.items())
    parts = [HEAD, OF_RUNS, table(("column", "type", "meaning"), identity)]
    for name, frame in find_frames().items():
        rows = ((code(column), kind, unit, meaning) for column, kind, unit, meaning in describe_columns(frame))
        source = ", ".join(map(code, frame.source.split(", ")))
        parts += [
            f"## {name}()\n",
            f"{docs[name]} From {source}.\n",
            table(("column", "type", "unit", "meaning"), rows),
        ]
    compared = (
        (code(name.removeprefix(PREFIX)), words.get("unit", ""), describe_meaning(words["meaning"]))
        for name, words in read_given().items()
        if name.startswith(PREFIX)
    )
    return "\n".join([*parts, COMPARED, table(("column", "unit", "meaning"), compared)])


PREFIX = "Comparison."
"""Of the columns of comparisons in fields.yaml."""


def describe_columns(frame: FrameOf) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, unit and meaning of a frame's columns; the fields' own words, as on the page of the files."""
    for leaf in list_leaves(frame.record):
        (words,) = (one for one in list_columns(leaf.owner) if one.name == leaf.field)
        kind = {"any": "by name"}.get(leaf.kind, leaf.kind)
        end = {
            "low": "Lower end of the 95 % interval over problems.",
            "high": "Upper end of the 95 % interval over problems.",
        }
        meaning = end[leaf.column.rpartition(".")[2]] if leaf.field == "ci95" else describe_meaning(words.meaning)
        if values := re.findall(r'`"(.*?)"`', words.type):
            meaning += f" Values: {', '.join(map(code, values))}."
        yield leaf.column, kind, words.unit, meaning
