"""The page of a run directory's files: each field of each record with its type, unit and meaning."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from evorun.runs.aggregates import Aggregates
from evorun.runs.job_search import Overview
from evorun.runs.live import ProgressRecord
from evorun.runs.manifest import Manifest
from evorun.runs.reselected import Selected
from evorun.runs.schema import (
    CandidateRecord,
    ComparisonRecord,
    MetricPoint,
    PredictionRecord,
    PrincipleEffect,
    ProblemRecord,
    PromptScore,
    RatingRecord,
    Results,
    RolloutRecord,
    RubricScore,
    SpeedRecord,
    StepRecord,
    TrainingRecord,
)
from evorun.runs.stopped import Stopped
from evorun.runs.studies import (
    RefittedRating,
    RejudgedChoice,
    RejudgedFigure,
    RejudgedGrade,
    RejudgedReward,
    RejudgeManifest,
    RescoreManifest,
)
from evorun.runs.sweeps import SweepManifest
from evorun.runs.tournaments import JudgmentRecord, MatchRecord, TournamentManifest, TournamentResults
from evorun.tracking.base import Row
from evorun.tracking.points import State
from reference.markdown import code, prose, table
from reference.sources import read_fields

RUN: Mapping[str, type] = {
    "manifest.json": Manifest,
    "problems.jsonl": ProblemRecord,
    "steps.jsonl": StepRecord,
    "candidates.jsonl": CandidateRecord,
    "ratings.jsonl": RatingRecord,
    "prompt_scores.jsonl": PromptScore,
    "comparisons.jsonl": ComparisonRecord,
    "predictions.jsonl": PredictionRecord,
    "training.jsonl": TrainingRecord,
    "speed.jsonl": SpeedRecord,
    "rollouts.jsonl": RolloutRecord,
    "metrics.jsonl": MetricPoint,
    "results.json": Results,
    "aggregates.json": Aggregates,
    ".progress.json": ProgressRecord,
    "artifacts/transplant.json": PromptScore,
    "artifacts/delete_one.json": PrincipleEffect,
    "artifacts/rubric_scores.json": RubricScore,
    "trackers/points.jsonl": Row,
    "trackers/state.json": State,
}
"""The files of a run directory that a type describes."""

STUDIES: Mapping[str, type] = {
    "sweep.json": SweepManifest,
    "evorun status --json": Overview,
    "rescore/DIGEST/rescore.json": RescoreManifest,
    "rejudge/DIGEST/rejudge.json": RejudgeManifest,
    "rejudge/DIGEST/figures.json": RejudgedFigure,
    "rejudge/DIGEST/ratings.jsonl": RefittedRating,
    "rejudge/DIGEST/choices.jsonl": RejudgedChoice,
    "rejudge/DIGEST/selections.jsonl": Selected,
    "rejudge/DIGEST/stops.jsonl": Stopped,
    "rejudge/DIGEST/rewards.jsonl": RejudgedReward,
    "rejudge/DIGEST/grades.jsonl": RejudgedGrade,
    "tournament.json": TournamentManifest,
    "matches.jsonl": MatchRecord,
    "judgments.jsonl": JudgmentRecord,
    "results.json (of a tournament)": TournamentResults,
}
"""The same of sweeps, studies of runs and tournaments."""

LISTS = (
    *("artifacts/transplant.json", "artifacts/delete_one.json", "artifacts/rubric_scores.json"),
    "rejudge/DIGEST/figures.json",
)
"""Files that hold one list of records."""

OTHERS = {
    "journal.sqlite": "Every effect; its tables `keys`, `results`, `requests` and `texts` hold compressed blocks with "
    "checksums. `evorun.runs.journal_reader.read_journal` yields each: `key`, `digest` (of the request), `request` and "
    "`result` (JSON, to the byte), `usage` and `seconds`.",
    "journal_refused_N.sqlite": "A copy of the journal with the calls of the N-th refused resume that made any.",
    ".hydra/config.yaml, .hydra/overrides.yaml": "Configuration and overrides, as Hydra writes them.",
    ".lock": "Held by the process that works on the run; empty.",
    "evorun.log": "The program's log.",
    "trainer.log": "The trainer's own output, in runs that train a real model.",
    "trainer.rankN.log": "The output of each of several processes that train together.",
    "report.html": "The report: one page, without a network.",
    "artifacts/adapter/": "The trained LoRA adapter in PEFT's format; `evorun.json` names its model, seed and updates.",
    "artifacts/adapters/step_N/": "The adapters or models of earlier steps (`method.transplant=true`).",
    "artifacts/model/": "The trained model, where all weights were trained (`training.weights=full`).",
    "artifacts/simulated_policy.json": "What a simulated policy has learned, in place of an adapter.",
    "artifacts/system_prompt.json": "The best one: `id`, `mean`, `sd`, `text`, `preamble`, `principles` (E-SPL).",
    "artifacts/rubrics.json": "The last rubrics by key: `id`, `maximum` (points), `text` (MPO, rubric rewards).",
    "artifacts/prompts.json": "The pool's prompts, the best first: `prompt`, `score` (GEPA).",
    "artifacts/demonstrations.json": "Solved problems in prompts: `problem`, `answer`, `reasoning` (few-shot).",
    "artifacts/train.jsonl, artifacts/held_out.jsonl": "The run's own copies of its fine-tuning data (`method=sft`).",
    "checkpoints/": "The trainer's state, to resume from: the newest `training.keep`.",
    "transplant/step_N/DIGEST/, delete_one/DIGEST/": "A study: `prompts.json`, and its `run/`.",
    "rejudge/DIGEST/": "A rejudging: beside its manifest and records a journal, a log, `comparisons.jsonl` with new "
    "verdicts, and `cost.json` (calls, tokens).",
    "rescore/DIGEST/": "A rescoring: beside its manifest a journal, a log, and `cost.json` (calls, tokens).",
}
"""The other files, in words."""


HEAD = """
# Files of a run, field by field

A `.jsonl` file has a JSON object per line, a `.json` file one object. [The run directory](../run_directory.md) says
what each file is for. A field of type `absent` is left out where it does not apply. The unit `number` is that of a pure
number, such as an index or a seed.
"""


class Column(NamedTuple):
    """A field of a record, as its row shows it."""

    name: str
    type: str
    unit: str
    meaning: str


def records_page() -> str:
    """Return the page in Markdown."""
    files = {**RUN, **STUDIES}
    parts = [
        HEAD,
    ]
    for file, record in files.items():
        kind = "A list of these records." if file in LISTS else ""
        parts += [f"## {file}\n", f"`{record.__module__}.{record.__name__}`. {kind}\n", _fields_table(record)]
    parts += ["## Objects within records\n"]
    for inner in _find_inner(list(files.values())):
        parts += [f"### {inner.__name__}\n", f"`{inner.__module__}.{inner.__name__}`.\n", _fields_table(inner)]
    others = ((", ".join(map(code, file.split(", "))), about) for file, about in OTHERS.items())
    parts += ["## Other files\n", table(("file", "what it holds"), others)]
    return "\n".join(parts)


def list_columns(record: type) -> Iterator[Column]:
    """Yield the fields of a record.

    Raises ValueError for one that neither its docstring nor fields.yaml explains, and for one with numbers that has no
    unit in fields.yaml.
    """
    hints, declared, given = get_type_hints(record, include_extras=True), read_fields(record), read_given()
    for name in _names(record):
        own: dict[str, str] = {}
        for base in reversed(record.__mro__):
            own |= given.get(f"{base.__name__}.{name}", {})
        words = {**given.get(name, {}), **own}
        meaning = own.get("meaning") or declared[name].doc or words.get("meaning")
        if not meaning:
            raise ValueError(
                f"{record.__name__}.{name}: expected a meaning, found none; write a docstring in "
                f"{declared[name].place}, or a meaning in docs/reference/fields.yaml"
            )
        kind, unit = json_type(hints[name]), words.get("unit", "")
        if not unit and re.search(r"\b(number|integer)\b", kind):
            raise ValueError(
                f"{record.__name__}.{name}: expected a unit, since it has numbers, found none; write one in "
                "docs/reference/fields.yaml (a pure number has the unit `number`)"
            )
        yield Column(name, kind, unit, meaning)


@cache
def read_given() -> Mapping[str, Mapping[str, str]]:
    """Return the units and meanings of fields.yaml, by field or RECORD.FIELD."""
    found: Mapping[str, Mapping[str, str]] = yaml.safe_load(Path(__file__).with_name("fields.yaml").read_text())
    return found


def json_type(hint: Any) -> str:
    """Return a type in JSON's words: `string`, `number or null`, `list of Score`, `object of Spent`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return json_type(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(json_type, arguments)))
    if origin is Literal:
        return " or ".join(f'`"{value}"`' for value in arguments)
    if origin is dict or origin is Mapping:
        return "object" if arguments[1] is Any else f"object of {_enclosed(arguments[1])}"
    if origin is tuple and arguments[-1] is not ...:
        return f"list of {len(arguments)}: {', '.join(map(json_type, arguments))}"
    if origin in (list, tuple):
        return f"list of {_enclosed(arguments[0])}"
    names = {
        str: "string",
        date: "string",  # ISO 8601
        bool: "boolean",
        int: "integer",
        float: "number",
        NoneType: "null",
        msgspec.UnsetType: "absent",
    }
    return names.get(hint) or str(hint.__name__)


def _enclosed(hint: Any) -> str:
    """Return a type within a list or an object, between brackets where it has alternatives."""
    kind = json_type(hint)
    return f"({kind})" if " or " in re.sub(r"\(.*\)", "", kind) else kind


def _names(record: type) -> list[str]:
    """Return the names of a record's fields, as its JSON has them."""
    if issubclass(record, msgspec.Struct):
        return [field.encode_name for field in msgspec.structs.fields(record)]
    return [field.name for field in dataclasses.fields(record)]  # type: ignore[arg-type]  # all others are dataclasses


def _find_inner(records: list[type]) -> list[type]:
    """Return the records within records, each once, in the order in which they are met."""
    found: dict[type, None] = {}
    for record in records:
        for hint in get_type_hints(record).values():
            inner = [one for one in _leaves(hint) if one not in found and one not in records]
            found.update(dict.fromkeys(inner))
            found.update(dict.fromkeys(_find_inner(inner)))
    return list(found)


def _leaves(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or dataclasses.is_dataclass(hint)):
        yield hint
    for argument in get_args(hint):
        yield from _leaves(argument)


def _fields_table(record: type) -> str:
    rows = (
        (code(name), _linked(kind), unit, describe_meaning(text)) for name, kind, unit, text in list_columns(record)
    )
    return table(("field", "type", "unit", "meaning"), rows)


def _linked(kind: str) -> str:
    """Return a type with a link to each record in it, whose names alone have capitals."""
    return re.sub(r"\b[A-Z]\w+\b", lambda found: f"[{found[0]}](#{found[0].lower()})", kind)


def describe_meaning(text: str) -> str:
    """Return a meaning in Markdown; the links of fields.yaml stay links."""
    return text if "](" in text else prose(text)
