"""From questions to a loaded task: problems on one side, their answers on the other."""

from collections.abc import Sequence

from evorun.tasks.base import LoadedTask, Provenance
from evorun.tasks.loading import load_rows
from evorun.tasks.math_contest.grader import ContestGrader
from evorun.tasks.math_contest.records import Question
from evorun.tasks.math_contest.simulator import ContestSimulator
from evorun.tasks.math_contest.task import MathContest


def loaded(
    task: MathContest, selected: Sequence[Question], held_out: Sequence[Question], provenance: Provenance
) -> LoadedTask:
    """Return the task with the selected questions to work on and the held-out ones as demonstrations."""
    answers = {question.problem.id: question.answers for question in (*selected, *held_out)}
    rows, validation = ([(q.problem, q.answers[0]) for q in questions] for questions in (selected, held_out))
    return load_rows(
        task,
        rows,
        validation=validation,
        provenance=provenance,
        grader=ContestGrader(task, answers),
        simulator=ContestSimulator,
    )
