"""Judgments of a response by the weighted criteria of its problem, one by one (RLER, rubrics as rewards)."""

from collections.abc import Mapping, Sequence

from evorun.runs.candidates import Response
from evorun.tasks.base import Problem, Prompt
from evorun.tasks.capabilities import SupportsRubrics
from evorun.tasks.rubric_items import HIGHEST, WeightedItem
from evorun.tasks.rubric_json import tagged_scores
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.thinking import without_thinking


def ask_for_score(
    task: SupportsRubrics, problem: Problem, response: Response, item: WeightedItem, *, as_json: bool
) -> Prompt:
    """Ask for the points of a response by one criterion. as_json: as an object, for engines that enforce one."""
    rubric = item.rubric
    return task.scoring_prompt(problem, response, rubric, rubric.items[0], as_json=as_json)


def read_item_score(text: str, item: WeightedItem, *, as_json: bool) -> float:
    """Return the score in [0, 1] that a reply gives. Raises ValueError("kind: what is wrong")."""
    rubric = item.rubric
    tagged = tagged_scores(without_thinking(text), rubric, rubric.items[0]) if as_json else text
    return read_scores(tagged, rubric, rubric.items[0]).total / HIGHEST


def weigh_scores(scores: Mapping[int, float], items: Sequence[WeightedItem]) -> float | None:
    """Return a response's reward: scores times weights, by the sum of the positive weights, or by 1 if that is less.

    scores: by the place of the criterion. Criteria without a score count nowhere; None where none has one.
    """
    if not scores:
        return None
    weights = {place: items[place].weight for place in scores}
    most = max(sum(weight for weight in weights.values() if weight > 0), 1.0)
    return sum(weights[place] * score for place, score in scores.items()) / most
