"""Sequential tokens: how long a search takes by its completions, were every batch of calls answered at once.

Calls that a method issues together share problem, step, role and attempt in their keys; of them only the longest
completion counts. The judges of a panel are asked together, too. Batches of a problem follow one another, and so do
the calls that serve all problems, which every problem waits for. Prompts are read far faster than completions are
written, and left out.
"""

from bisect import bisect_right
from collections import defaultdict
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import msgspec

from evorun.errors import JournalError, RunDirectoryError
from evorun.runs.candidates import SHARED
from evorun.runs.journal_reader import decode_result
from evorun.runs.recording import open_effects
from evorun.runs.spending import GOLD


class SequentialTokens:
    """Completion tokens of a run along its critical path."""

    def __init__(self, longest: dict[tuple[str, int, str, int], int]) -> None:
        """longest: tokens of the longest completion by problem, step, role and attempt."""
        by_problem: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for (problem, step, _, _), tokens in longest.items():
            by_problem[problem][step] += tokens
        self._sums = {}
        for problem, by_step in by_problem.items():
            steps = sorted(by_step)
            self._sums[problem] = steps, list(accumulate(by_step[step] for step in steps))

    def up_to(self, problem: str, step: int) -> int:
        """Return a problem's tokens up to a step, with those of calls that serve all problems."""
        return self._own(problem, step) + self._own(SHARED, step)

    def _own(self, problem: str, step: int) -> int:
        steps, sums = self._sums.get(problem, ([], []))
        index = bisect_right(steps, step)
        return sums[index - 1] if index else 0


class _Tokens(msgspec.Struct):
    completion_tokens: int


def read_sequential_tokens(run: Path) -> SequentialTokens | None:
    """Read the sequential tokens of a run from its journal; None where no journal that can be read holds its calls."""
    longest: dict[tuple[str, int, str, int], int] = {}
    try:
        with closing(open_effects(run)) as journal:
            for number, (key, _) in enumerate(journal.index()):
                usage, _ = journal.spent(number)
                # programs, rewards and updates in the journal have no tokens
                if usage is None or key.count("|") < 4:
                    continue
                problem, step, role, _, attempt = key.rsplit("|", 4)
                if role == GOLD or not (step.isdigit() and attempt.isdigit()):
                    continue
                batch = problem, int(step), role.partition(".")[0], int(attempt)
                tokens = decode_result(usage.encode(), _Tokens, key, journal.path).completion_tokens
                longest[batch] = max(longest.get(batch, 0), tokens)
    except (JournalError, RunDirectoryError):
        return None
    return SequentialTokens(longest) if longest else None
