"""Sequential tokens: how long a search takes by its completions, were every batch of calls answered at once.

Calls that a method issues together share problem, step, role and attempt in their keys; of them only the longest
completion counts. The judges of a panel are asked together, too. Batches of a problem follow one another, and so do
the calls that serve all problems, which every problem waits for. Prompts are read far faster than completions are
written, and left out.
"""

from bisect import bisect_right
from collections import defaultdict
from itertools import accumulate

from evorun.runs.call_keys import parse_call_key
from evorun.runs.candidates import SHARED
from evorun.runs.spending import GOLD


class SequentialTokens:
    """Completion tokens of a run along its critical path."""

    def __init__(self) -> None:
        self._longest: dict[tuple[str, int, str, int], int] = {}
        """Tokens of the longest completion by problem, step, role and attempt."""
        self._sums: dict[str, tuple[list[int], list[int]]] = {}
        """Steps of each problem, and its tokens up to each."""

    def add(self, key: str, tokens: int) -> None:
        """Take in the completion tokens of the call with this key in the journal; a repeated key counts once."""
        call = parse_call_key(key)
        if call is None or call.role == GOLD:
            return
        batch = call.problem, call.step, call.role.partition(".")[0], call.attempt
        self._longest[batch] = max(self._longest.get(batch, 0), tokens)
        self._sums.clear()

    def up_to(self, problem: str, step: int) -> int:
        """Return a problem's tokens up to a step, with those of calls that serve all problems."""
        return self._own(problem, step) + self._own(SHARED, step)

    def _own(self, problem: str, step: int) -> int:
        if not self._sums:
            self._add_up()
        steps, sums = self._sums.get(problem, ([], []))
        index = bisect_right(steps, step)
        return sums[index - 1] if index else 0

    def _add_up(self) -> None:
        by_problem: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for (problem, step, _, _), tokens in self._longest.items():
            by_problem[problem][step] += tokens
        for problem, by_step in by_problem.items():
            steps = sorted(by_step)
            self._sums[problem] = steps, list(accumulate(by_step[step] for step in steps))
