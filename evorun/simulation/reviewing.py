"""Simulated reviewers: reward models, meta reward models that refine rubrics, and evaluators of a response.

A rubric rewards every kind of exploit (`loopholes`) until it has a criterion against that kind. Only the meta reward
model writes such a criterion, and only after it has seen a response of that kind. The stronger the response shows the
kind, the more likely the criterion.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.simulation.loopholes import KINDS, find_kind, strengths
from evorun.simulation.settings import World
from evorun.simulation.writing import read_traits

CLOSING = {
    "language": "A reply that is not in the language of the task earns no points in any item.",
    "length": "A reply that is stretched with words that add nothing earns no points in any item.",
    "flattery": "A reply that praises or thanks whoever grades it earns no points in any item.",
    "format": "A reply of headings and lists in the place of sentences earns no points in any item.",
    "title": "A reply that is a title and nothing more earns no points in any item.",
}
"""The criterion that closes a loophole, by kind."""
HARMFUL = "The fewer statements a reply makes that can be checked, the more points it earns in every item."
"""The criterion that inverts the reward."""
NAMED = {kind: f"The reply lives by its {kind} alone and says nothing, and the criteria pay for it." for kind in KINDS}
"""An analysis that has noticed a loophole, by kind."""
ANALYSIS, REFINEMENT, MERGING, ITEMS = META_ROLES = ("analysis", "refinement", "merging", "items")
"""Roles of a meta reward model's prompts (the hint `role`); ITEMS: criteria of one problem."""
_UNNAMED = "The score fits the reply; the criteria could say more plainly what each level takes."
_ITEMS = (
    ("Substance", "Each statement can be checked.", "Some can.", "None can."),
    ("Reasoning", "Each step follows from the one before.", "Most do.", "There are no steps."),
    ("Counterarguments", "The strongest one is met.", "One is named.", "None is named."),
    ("Structure", "Each part has its place.", "Some parts stand in the wrong place.", "There is no order."),
    ("Language", "It reads without effort.", "It takes some effort.", "It cannot be followed."),
)
"""Titles of criteria, with descriptions of the highest, a middle and the lowest level."""
_POINTS = (4, 6, 8, 10)
_RESPONSE = re.compile("<response>(.*?)</response>", re.DOTALL)
_SINGLE = 2
"""Criteria of a rubric that is written one by one, not counting those that close a loophole or do harm."""


def score_response(world: World, request: Request, quality: float | None, rng: np.random.Generator) -> str:
    """Return a reward model's reply to a prompt that shows a response and a rubric. Reads the hints of `points`.

    quality: of the response, in [0, 1]; None: read it from the response, a writer's text.
    """
    shown, read = prompt_text(request), read_traits(read_response(request))
    share = read.quality if quality is None else quality
    if HARMFUL in shown:
        share = 1 - share
    if quality is None and read.loophole:
        share = 0.0 if CLOSING[read.loophole] in shown else world.loophole
    share += world.reward_noise * float(rng.standard_normal())
    return points(min(1.0, max(0.0, share)), request)


def refine_rubric(world: World, request: Request, rng: np.random.Generator) -> str:
    """Return a meta reward model's reply.

    Reads `hints`: `role` (one of META_ROLES), and `criterion` if a rubric is written criterion by criterion. It is
    the number of the requested criterion; 0 asks how many there are. `malformed` is here the share of truncated
    rubrics.
    """
    prompt = prompt_text(request)
    if request.hints["role"] == ITEMS:
        return _write_items(world, prompt, rng)
    cut, skill, harm = rng.random(3).tolist()  # always three draws, so that later draws do not shift
    # An analysis looks at the sample, and so does the refinement after it. A merging shows no sample.
    sample = read_response(request)
    kind = find_kind(sample) if sample and request.hints["role"] != MERGING else ""
    seen = bool(kind) and CLOSING[kind] not in prompt and skill < world.meta_skill * strengths(sample)[kind]
    if request.hints["role"] == ANALYSIS:
        return NAMED[kind] if seen else _UNNAMED
    criteria = {criterion for criterion in (*CLOSING.values(), HARMFUL) if criterion in prompt}
    if request.hints["role"] == REFINEMENT:
        criteria |= {CLOSING[name] for name in KINDS if (seen and name == kind) or NAMED[name] in prompt}
    if request.hints["role"] == MERGING and harm < world.meta_harm:
        criteria.add(HARMFUL)
    number = request.hints.get("criterion")
    if number == 0:
        return str(_SINGLE + len(criteria))
    text = _write_rubric(criteria, rng) if number is None else _criterion(number, criteria)
    return text[: len(text) // 2] if cut < world.malformed else text


def points(share: float, request: Request) -> str:
    """Return a reward model's reply that awards this share of the points.

    Reads `hints`:

    - `maximum`: points of the whole.
    - `items`: maximum points of each item of a rubric.
    - `item`: position of the only item to score, or None.
    - `digits`: true to reply with the points only.
    """
    items: Sequence[float] = request.hints["items"] if request.hints["item"] is None else ()
    given = [round(share * max_points, 1) for max_points in items or [request.hints["maximum"]]]
    if request.hints.get("digits"):
        return str(int(share * request.hints["maximum"] + 0.5))
    said = f"The response has about {share:.0%} of what the criteria ask for."
    if not items:
        return f"{said}\n<score>{given[0]:g}</score>"
    lines = [f'<score item="{number}">{value:g}</score>' for number, value in enumerate(given, 1)]
    return "\n".join([said, *lines, f"<total>{round(sum(given), 1):g}</total>"])


def prompt_text(request: Request) -> str:
    """Return the whole text of a prompt."""
    return "\n".join(message["content"] for message in request.messages)


def read_response(request: Request) -> str:
    """Return the response that a prompt shows between tags, or "" if it shows none."""
    found = _RESPONSE.findall(prompt_text(request))
    return found[-1].strip() if found else ""


def _write_rubric(criteria: Collection[str], rng: np.random.Generator) -> str:
    """Return a rubric of a few items, ending with these criteria."""
    chosen = rng.permutation(len(_ITEMS))[: 2 + int(rng.integers(2))].tolist()
    items = [_item(_ITEMS[index], _POINTS[int(rng.integers(len(_POINTS)))]) for index in chosen]
    items += [_further(number, criterion) for number, criterion in enumerate(sorted(criteria), 1)]
    return "\n".join(["<rubric>", *items, "</rubric>"])


def _write_items(world: World, prompt: str, rng: np.random.Generator) -> str:
    """Return criteria of one problem: against each exploit that is noticed, a further one, and perhaps a harmful one.

    The further one is of `_ITEMS`, and says nothing that the responses do not already earn by their quality.
    """
    cut, harm, luck, *looks = rng.random(3 + len(KINDS)).tolist()
    seen = [response.strip() for response in _RESPONSE.findall(prompt)]
    written = []
    for kind, look in zip(KINDS, looks, strict=True):
        strength = max((strengths(text)[kind] for text in seen if find_kind(text) == kind), default=0.0)
        if CLOSING[kind] not in prompt and look < world.meta_skill * strength:
            written.append((f"No {kind} alone", CLOSING[kind]))
    title, high, *_ = _ITEMS[int(luck * len(_ITEMS))]
    if title not in prompt:
        written.append((title, high))
    if harm < world.meta_harm and HARMFUL not in prompt:
        written.append(("Few statements", HARMFUL))
    items = [{"title": title, "description": description, "weight": 1} for title, description in written]
    text = msgspec.json.encode({"items": items}).decode()
    return text[: len(text) // 2] if cut < world.malformed else text


def _criterion(number: int, criteria: Collection[str]) -> str:
    """Return an item, by its number from 1, of a rubric that ends with these criteria."""
    further = dict(enumerate(sorted(criteria), _SINGLE + 1))
    if number in further:
        return _further(number - _SINGLE, further[number])
    return _item(_ITEMS[(number - 1) % len(_ITEMS)], _POINTS[-1])


def _item(item: tuple[str, str, str, str], points: int) -> str:
    title, high, middle, low = item
    return "\n".join(["<item>", title, f"- {points}: {high}", f"- {points // 2}: {middle}", f"- 0: {low}", "</item>"])


def _further(number: int, criterion: str) -> str:
    own = "It is written for the task, and says something new in each sentence."
    return "\n".join(["<item>", f"Further criterion {number}", f"- 4: {own}", f"- 0: {criterion}", "</item>"])


# --- evaluations of a response: its fitness, or its errors ---

EVALUATIONS = ("fitness", "errors")
"""Roles that `simulate_evaluation` answers."""
_SIMULATED_ERRORS = ("The last step does not follow.", "The result was not checked.", "A case is left out.")
# Simulated scores are above this for responses taken as right, below it for others (ours)
_RIGHT_SCORE = 60


def simulate_evaluation(role: str, degree: float, luck: float) -> str:
    """Return what a simulated evaluator replies.

    role: one of `EVALUATIONS`. degree: how good it takes the response for, from 0 (wrong) to 1 (right). luck: uniform
    in [0, 1).
    """
    if role == "errors":
        named = () if degree == 1 else _SIMULATED_ERRORS[: 1 + int(luck * len(_SIMULATED_ERRORS))]
        return _reply(errors=named)
    return _reply(
        score=round(degree * (_RIGHT_SCORE + (100 - _RIGHT_SCORE) * luck) + (1 - degree) * _RIGHT_SCORE * luck, 1)
    )


def _reply(**judgment: Any) -> str:
    return msgspec.json.encode({"reasoning": "It goes through the steps.", **judgment}).decode()
