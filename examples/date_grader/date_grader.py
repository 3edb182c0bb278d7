"""A grader of rows: answers that are dates, however they are written."""

from datetime import datetime

from evorun.tasks.base import Problem
from evorun.tasks.rows.answers import Rows

FORMS = ("%Y-%m-%d", "%d %B %Y", "%B %d, %Y", "%d.%m.%Y")


class Dates(Rows):
    """Reads dates in several forms; a right one names the same day."""

    form = "a date, such as 1969-07-20"

    def read_part(self, text: str, problem: Problem) -> str:
        answer = super().read_part(text, problem)
        self.comparable(answer)  # refuses what is no date
        return answer

    def comparable(self, answer: str) -> str:
        for form in FORMS:
            try:
                return datetime.strptime(answer.strip().rstrip("."), form).date().isoformat()
            except ValueError:
                continue
        raise ValueError(f"not_a_date: expected a date, got {answer!r:.60}")
