"""From questions to a loaded task: the grader, which alone holds the answers, and the problems without them."""

from collections.abc import Mapping, Sequence

import msgspec

from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, LoadedTask, Problem, Provenance, Tools
from evorun.tasks.loading import load_rows
from evorun.tasks.search_qa.records import Question
from evorun.tasks.search_qa.simulator import SearchSimulator
from evorun.tasks.search_qa.task import SearchQa


class SearchGrader:
    """Compares with every accepted answer: right where one matches, and the F1 of the one that is nearest."""

    def __init__(self, task: SearchQa, answers: Mapping[str, Sequence[str]]) -> None:
        """answers: those that are accepted, by problem id."""
        self._task = task
        self._answers = answers

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response; one without an answer is wrong. Raises DataError for a problem that is not known."""
        if problem.id not in self._answers:
            raise DataError(f"problem '{problem.id}': expected one of the {len(self._answers)} loaded problems")
        grades = [self._task.score(problem, response, gold) for gold in self._answers[problem.id]]
        best = max(grades, key=lambda grade: (bool(grade.correct), grade.scores["f1"]))
        return best if response.answer is not None else msgspec.structs.replace(best, detail=response.error or "")


def loaded(
    task: SearchQa, selected: Sequence[Question], held_out: Sequence[Question], provenance: Provenance
) -> LoadedTask:
    """Return the task with the selected questions to work on and the held-out ones as demonstrations."""
    rows, validation = ([(q.problem, q.answers[0]) for q in questions] for questions in (selected, held_out))
    return load_rows(
        task,
        rows,
        validation=validation,
        provenance=provenance,
        grader=SearchGrader(task, {question.problem.id: question.answers for question in (*selected, *held_out)}),
        simulator=SearchSimulator,
    )
