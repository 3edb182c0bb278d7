"""MathBench's own files: finding and reading them in their folder."""

import logging
from collections.abc import Sequence
from pathlib import Path

from evorun.errors import DataError
from evorun.tasks.benchmark_files import numbered_lines
from evorun.tasks.mathbench.records import Question, parse_record

FILE = "single_choice_en.jsonl"
"""The English single-choice application questions of a stage; `<stage>_knowledge` folders are never read (§4.1)."""
ARCHIVE = "mathbench_v1"
"""Folder that the benchmark's archive unpacks to."""
RELEASE = "https://github.com/open-compass/MathBench/releases/tag/v0.1.0"
HUB_FILES = ("*single_choice_*.jsonl",)
SAMPLE = Path(__file__).parent / "sample"

_log = logging.getLogger(__name__)


def archive_root(folder: Path, stages: Sequence[str]) -> Path:
    """Return the folder that holds the stages: `folder` itself or the archive's folder inside it.

    Raises DataError naming what was expected when a stage's file is in neither.
    """
    if not folder.is_dir():
        hint = "; unpack the archive first" if folder.is_file() else ""
        raise DataError(f"task.data: expected a folder with MathBench's files, got '{folder}'{hint}")
    # The archive unpacks into a folder of its own; either level may be given.
    root = folder / ARCHIVE if (folder / ARCHIVE).is_dir() else folder
    missing = [stage for stage in stages if not (root / stage / FILE).is_file()]
    if missing:
        raise DataError(
            f"task.data: expected the file {root / missing[0] / FILE}; the folder must hold what MathBench's archive "
            f"does ({ARCHIVE}/<stage>/{FILE}), which {RELEASE} offers"
        )
    return root


def looks_like_archive(root: Path, stages: Sequence[str]) -> bool:
    """Say whether each stage has the other parts that the archive unpacks with it (Chinese and theory questions)."""
    return all(
        (root / stage / "single_choice_cn.jsonl").is_file() and (root / f"{stage}_knowledge").is_dir()
        for stage in stages
    )


def read_stages(root: Path, stages: Sequence[str]) -> dict[str, list[Question]]:
    """Read every stage's file, in file order.

    A question that is repeated with the same options and answer, in its own stage or another, is kept where it comes
    first, with a warning. Raises DataError naming file and line for a malformed record, an id used twice, or a question
    repeated with another answer.
    """
    located = [
        (where, parse_record(line, where, stage, number))
        for stage in stages
        for where, number, line in numbered_lines(root / stage / FILE)
    ]
    seen: dict[str, str] = {}
    for where, question in located:
        if question.problem.id in seen:
            raise DataError(f"{where}: id '{question.problem.id}' is already used in {seen[question.problem.id]}")
        seen[question.problem.id] = where
    first: dict[tuple[str, tuple[str, ...]], Question] = {}
    questions: dict[str, list[Question]] = {stage: [] for stage in stages}
    for where, question in located:
        data = question.problem.data
        earlier = first.setdefault((data["question"], data["options"]), question)
        if earlier.answer != question.answer:
            raise DataError(f"{where}: the same question as {seen[earlier.problem.id]}, with another answer")
        if earlier is question:
            questions[question.problem.stratum].append(question)
        else:
            _log.warning("%s: left out, the same question as %s", where, seen[earlier.problem.id])
    return questions
