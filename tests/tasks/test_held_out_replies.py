"""Replies with a careful human's verdict: how many of them a run may misjudge, by task and file."""

from pathlib import Path

import pytest

from held_out import CORPUS, Outcome, outcomes, read_judged

FILES = sorted(CORPUS.parent.glob("held_out*.jsonl"))
TASKS = ("mathbench", "aime", "math500", "livecodebench", "sudoku", "graph_coloring", "tsp", "judge", "fitness")
TASKS += ("search_qa", "ethics")
EXACT_MATCH = ("'the river' before the name",)
"""Right replies to search questions that SQuAD's exact match, which the metric is by definition, does not count."""
NOT_IN_ALL = ("ethics",)
"""Tasks that a file may do without: the fourth one has no deeds."""
MIN_RIGHT_PER_REFUSED = 20
MIN_WRONG_PER_ACCEPTED = 33
OTHER_FORMS = ("mathbench", "arithmetic", "aime", "math500", "search_qa", "sudoku", "graph_coloring", "tsp", "fitness")


@pytest.fixture(scope="module")
def by_file() -> dict[Path, list[Outcome]]:
    """Return the outcomes of each file's replies, graded all at once: a grader's processes take a second to start."""
    replies = [
        (file, reply)
        for file in FILES
        for reply in read_judged(file)
        if reply.task in TASKS and reply.why not in EXACT_MATCH
    ]
    graded = zip(replies, outcomes([reply for _, reply in replies]), strict=True)
    found: dict[Path, list[Outcome]] = {file: [] for file in FILES}
    for (file, _), outcome in graded:
        found[file].append(outcome)
    return found


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def judged(request: pytest.FixtureRequest, by_file: dict[Path, list[Outcome]]) -> list[Outcome]:
    return by_file[request.param]


@pytest.mark.parametrize("task", TASKS)
def test_a_run_says_what_a_careful_human_says(judged: list[Outcome], task: str) -> None:
    for is_right, replies_per_misjudged in ((True, MIN_RIGHT_PER_REFUSED), (False, MIN_WRONG_PER_ACCEPTED)):
        replies = [outcome for outcome in judged if outcome.reply.task == task and outcome.reply.right == is_right]
        misjudged = [(outcome.reply.why, outcome.read) for outcome in replies if not outcome.agrees]
        assert replies or task in NOT_IN_ALL
        assert len(misjudged) <= len(replies) // replies_per_misjudged, misjudged


@pytest.mark.parametrize("task", OTHER_FORMS)
def test_an_answer_in_another_form_than_the_one_asked_for_is_read(task: str) -> None:
    replies = [reply for reply in read_judged(CORPUS.parent / "other_forms.jsonl") if reply.task == task]
    assert {reply.verdict for reply in replies} == {"right", "wrong"}
    assert not [(outcome.reply.reply, outcome.read) for outcome in outcomes(replies) if not outcome.agrees]
