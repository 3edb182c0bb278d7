"""Replies with a careful human's verdict: how many of them a run may misjudge, by task and file."""

from functools import cache
from pathlib import Path

import pytest

from held_out import CORPUS, Outcome, outcomes, read_judged

FILES = sorted(CORPUS.parent.glob("held_out*.jsonl"))
TASKS = ("mathbench", "aime", "math500", "livecodebench", "sudoku", "graph_coloring", "tsp", "judge", "fitness")
TASKS += ("search_qa", "ethics")
SLOW = ("math500", "livecodebench")
"""Tasks whose grader runs programs or computes values."""
EXACT_MATCH = ("'the river' before the name",)
"""Right replies to search questions that SQuAD's exact match, which the metric is by definition, does not count."""
NOT_IN_ALL = ("ethics",)
"""Tasks that a file may do without: the fourth one has no deeds."""
MIN_RIGHT_PER_REFUSED = 20
MIN_WRONG_PER_ACCEPTED = 33
OTHER_FORMS = ("mathbench", "arithmetic", "aime", "math500", "search_qa", "sudoku", "graph_coloring", "tsp", "fitness")


@cache
def graded(task: str) -> dict[Path, list[Outcome]]:
    """Return the outcomes of each file's replies, graded all at once: a grader's processes take a second to start."""
    replies = [
        (file, reply)
        for file in FILES
        for reply in read_judged(file)
        if reply.task == task and reply.why not in EXACT_MATCH
    ]
    found: dict[Path, list[Outcome]] = {file: [] for file in FILES}
    for (file, _), outcome in zip(replies, outcomes([reply for _, reply in replies]), strict=True):
        found[file].append(outcome)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("task", [pytest.param(task, marks=[pytest.mark.nightly] * (task in SLOW)) for task in TASKS])
def test_a_run_says_what_a_careful_human_says(task: str, file: Path) -> None:
    for is_right, replies_per_misjudged in ((True, MIN_RIGHT_PER_REFUSED), (False, MIN_WRONG_PER_ACCEPTED)):
        replies = [outcome for outcome in graded(task)[file] if outcome.reply.right == is_right]
        misjudged = [(outcome.reply.why, outcome.read) for outcome in replies if not outcome.agrees]
        assert replies or task in NOT_IN_ALL
        assert len(misjudged) <= len(replies) // replies_per_misjudged, misjudged


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[pytest.mark.nightly] * (task in SLOW)) for task in OTHER_FORMS]
)
def test_an_answer_in_another_form_than_the_one_asked_for_is_read(task: str) -> None:
    replies = [reply for reply in read_judged(CORPUS.parent / "other_forms.jsonl") if reply.task == task]
    assert {reply.verdict for reply in replies} == {"right", "wrong"}
    assert not [(outcome.reply.reply, outcome.read) for outcome in outcomes(replies) if not outcome.agrees]
