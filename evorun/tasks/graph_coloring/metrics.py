"""The metrics of section 3.2 of the Lyria paper: CR, CF, SC and PS.

Where the paper leaves a choice, this is what holds here:

- *Excess colours.* ECC(f') = |F'| - k is said to count the distinct colours beyond k. But F' is the list of all
  assignments, so that |F'| is its length: 6 would be left over for every answer to the paper's graphs, right ones too.
  Here the excess is the number of different colours that are not among 0 to k - 1. For colours numbered from 0 without
  gaps that is k' - k.
- *The penalised score* takes that excess as k' - k. By the paper's k' alone the colouring {0, 7} of two colours would
  have PS = 100 and still be wrong; a search that stops at 100 would end there. Here PS = 100 exactly where CR = 1.
- *PS = 0 where k' >= |V|* is meant for an answer that gives each vertex a colour of its own; it holds here only where
  there is an excess. Three colours on a triangle are right, and so are worth 100.
- *A graph without edges* has CF = 0: nothing can conflict.
- *An answer that cannot be read* has CR 0, CF 1, SC 0 and PS 0. A colour out of range does not make one unreadable.

`penalised_score_paper` is PS of section 3.2 to the letter, with k' = |{f'(v)}|, whatever the colours are called. It is
higher where a colour outside 0 to k - 1 takes the place of an allowed one (a right colouring in 1 to k has 100), and 0
where k' >= |V|, for a right answer too. The paper's Score is `score` in every case.

In graphs with many more vertices than colours the formula makes colours beyond k cheap: one takes 1 / (|V| - k) of the
score, and can save more conflicts than that. It stays as the paper has it; CR knows the difference.
"""

from evorun.tasks.base import Grade
from evorun.tasks.graph_coloring.graph import Coloring, Graph, conflicts
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE, PENALISED_SCORE_PAPER

UNREADABLE = Grade(
    correct=False,
    scores={"score": 0.0, PENALISED_SCORE: 0.0, "conflict_ratio": 1.0, PENALISED_SCORE_PAPER: 0.0},
)


def excess(coloring: Coloring, k: int) -> int:
    """Return the number of different colours outside 0 to k - 1; colours are never negative."""
    return sum(color >= k for color in set(coloring))


def measured(coloring: Coloring, of: Graph, k: int) -> Grade:
    """Return all metrics of a colouring in any non-negative colours."""
    # CF, the share of edges in conflict; CR asks for none, and for no excess.
    ratio = len(conflicts(coloring, of.edges)) / len(of.edges) if of.edges else 0.0
    score, over = 100 * (1 - ratio), excess(coloring, k)
    # The penalty ratio R: an excess of |V| - k, a colour of its own for each vertex, leaves nothing.
    most = of.vertices - k
    left = 1.0 if over == 0 else 1 - over / most if over < most else 0.0
    used = len(set(coloring))
    left_paper = 0.0 if used >= of.vertices else 1.0 if used <= k else 1 - (used - k) / most
    scores = {
        "score": score,
        PENALISED_SCORE: score * left,
        "conflict_ratio": ratio,
        PENALISED_SCORE_PAPER: score * left_paper,
    }
    return Grade(correct=ratio == 0 and over == 0, scores=scores)
