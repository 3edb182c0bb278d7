"""Simulated replies to prompts that ask a model to reflect: summaries, critiques, and edits of principles.

Edits are the JSON that E-SPL's operators ask for: `{"analysis": ..., "edits": [{"op", "id" or "ids", "text"}]}`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from evorun.models.base import Request
from evorun.simulation.principles import CATALOGUE, find_principles, merit
from evorun.simulation.settings import World

MAX_EDITS = 3
"""Maximum number of edits per reply (ours): a child differs little from its parent, so its rating is informative."""

_ADVICE = (
    "Restate what is asked before you start.",
    "Work on the smallest case first.",
    "Check every result against the problem's own numbers.",
    "Look for the case that would break your answer.",
    "Say which fact each step rests on.",
    "Try a second way and compare.",
    "Mind units, signs and off-by-one errors.",
    "Keep to what the problem gives you.",
)


def reflect(world: World, request: Request, rng: np.random.Generator) -> str:
    """Return the reply to a prompt about responses or system prompts, not about a problem.

    Reads `hints`: `role` (reflect: a complete new system prompt; summary; critique; proposal; aggregation; crossover).
    Requests for edits also have `principles` (of the system prompt to edit), `max_edits` and `sources`. The sources
    are the proposed edits (`op`, `ids`, `text`) for an aggregation, the principles of other system prompts for a
    crossover. ACE's reflection (ace_reflection) has `entries` (number and text of each), its curation (ace_curation)
    `principles` and `max_edits`. Requests for advice on programs (paradigms, recommendations) have `known`, what was
    advised before, and `count`. The world's `malformed` is here the share of invalid lists of edits.
    """
    hints = request.hints
    if hints["role"] == "reflect":
        return _new_instruction(rng)
    if hints["role"] == "ace_reflection":
        return _tag(world, hints["entries"], rng)
    if hints["role"] == "ace_curation":
        return _add_advice(world, hints["principles"], hints["max_edits"], rng)
    if hints["role"] == "paradigms":
        return _paradigms(world, hints["known"], hints["count"], rng)
    if hints["role"] == "recommendations":
        return _recommendations(world, hints["known"], hints["count"], rng)
    if hints["role"] == "summary" or "principles" not in hints:  # lessons in words
        return "It names the unknowns, goes on step by step, and errs, if it does, near the end."
    principles, limit = list(hints["principles"]), min(MAX_EDITS, hints["max_edits"])
    edits: list[_PrincipleEdit] = []
    if hints["role"] == "aggregation":
        edits = _compatible([_PrincipleEdit(**edit) for edit in hints["sources"]], limit, rng)
    else:
        known = set(find_principles("\n".join(hints["sources"]))) if hints["role"] == "crossover" else set(CATALOGUE)
        new = [
            principle
            for principle in CATALOGUE
            if principle in known and principle not in find_principles("\n".join(principles))
        ]
        for _ in range(1 + int(rng.integers(limit))):
            edits += _proposed(principles, edits, new, world, rng)
    if rng.random() < world.malformed:
        return _faulty(edits, len(principles), rng)
    return _reply(edits)


def _new_instruction(rng: np.random.Generator) -> str:
    """Return a new system prompt, in a fenced block."""
    chosen = rng.permutation(len(_ADVICE))[: 2 + int(rng.integers(3))]
    advice = " ".join(_ADVICE[i] for i in chosen)
    return f"The earlier replies went wrong in their last steps.\n```\nSolve the problem. {advice}\n```"


def _tag(world: World, entries: Sequence[tuple[int, str]], rng: np.random.Generator) -> str:
    """Return a review with a tag for each entry, which knows what the entry does or guesses."""
    tags = []
    for number, text in entries:
        worth = merit(world, text)
        known = "helpful" if worth > 0 else "harmful" if worth < 0 else "neutral"
        guessed = ("helpful", "harmful", "neutral")[int(rng.integers(3))]
        tags.append({"id": f"B{number}", "tag": known if rng.random() < world.reflection_skill else guessed})
    if rng.random() < world.malformed:
        return "The attempt errs near the end; the advice was sound."
    return msgspec.json.encode({"analysis": "The attempt errs, if it does, near the end.", "tags": tags}).decode()


def _add_advice(world: World, known: Sequence[str], limit: int, rng: np.random.Generator) -> str:
    """Return a curator's additions: principles that are not there yet, those that help if it knows them."""
    chosen = _choose_principles(world, known, int(rng.integers(min(MAX_EDITS, limit) + 1)), rng)
    additions = [{"section": "strategies", "text": principle} for principle in chosen]
    if rng.random() < world.malformed:
        return "I would add a note on checking."
    return msgspec.json.encode({"analysis": "What was missing.", "additions": additions}).decode()


def _choose_principles(world: World, known: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """Return new principles while there are any, each time one that helps if the model knows which do."""
    new = [principle for principle in CATALOGUE if principle not in find_principles("\n".join(known))]
    chosen: list[str] = []
    for _ in range(count):
        good = [principle for principle in new if merit(world, principle) > 0]
        pool = good if rng.random() < world.reflection_skill else new
        if pool:
            chosen.append(pool[int(rng.integers(len(pool)))])
            new.remove(chosen[-1])
    return chosen


def _paradigms(world: World, known: Sequence[str], count: int, rng: np.random.Generator) -> str:
    """Return new approaches, whose plans are principles."""
    plans = _choose_principles(world, known, count, rng)
    if rng.random() < world.malformed:
        return "I would try another kind of search."
    entries = [{"title": plan, "plan": plan, "target": "", "pitfalls": ""} for plan in plans]
    return msgspec.json.encode({"reasoning": "It moves one part at a time.", "paradigms": entries}).decode()


def _recommendations(world: World, known: Sequence[str], count: int, rng: np.random.Generator) -> str:
    """Return a numbered list of principles: half of those known, and new ones."""
    kept = list(find_principles("\n".join(known)))
    if rng.random() < world.reflection_skill:
        kept = [principle for principle in kept if merit(world, principle) > 0]
    kept = kept[: count // 2]
    chosen = [*kept, *_choose_principles(world, known, count - len(kept), rng)]
    if rng.random() < world.malformed:
        return "I would go on as before."
    return "\n".join(f"{number}. {principle}" for number, principle in enumerate(chosen, 1))


class _PrincipleEdit(NamedTuple):
    op: str
    ids: tuple[int, ...] = ()
    text: str = ""

    @property
    def entry(self) -> dict[str, Any]:
        """The edit as an entry of a reply."""
        names = [f"G{number}" for number in self.ids]
        named = {"ids": names} if len(names) > 1 or self.op == "merge" else {"id": names[0]} if names else {}
        return {"op": self.op, **named, **({"text": self.text} if self.text else {})}


def _reply(edits: Sequence[_PrincipleEdit]) -> str:
    entries = [edit.entry for edit in edits]
    return msgspec.json.encode({"analysis": "The attempts part where they check.", "edits": entries}).decode()


def _compatible(proposals: Sequence[_PrincipleEdit], limit: int, rng: np.random.Generator) -> list[_PrincipleEdit]:
    """Return a few of the proposals, of which no two edit the same principle or add the same text."""
    chosen: list[_PrincipleEdit] = []
    for index in rng.permutation(len(proposals)).tolist():
        proposal = proposals[index]
        touched = {number for other in chosen for number in other.ids}
        said = {other.text for other in chosen if other.text}
        if len(chosen) < limit and not touched & {*proposal.ids} and proposal.text not in said:
            chosen.append(proposal)
    return chosen


def _proposed(
    principles: Sequence[str],
    earlier: Sequence[_PrincipleEdit],
    new: Sequence[str],
    world: World,
    rng: np.random.Generator,
) -> list[_PrincipleEdit]:
    """Return one more edit, if any is possible. new: principles that could be added."""
    touched = {number for edit in earlier for number in edit.ids}
    free = {number: text for number, text in enumerate(principles, 1) if number not in touched}
    new = [principle for principle in new if all(principle != other.text for other in earlier)]
    if rng.random() < world.reflection_skill:
        new = [principle for principle in new if merit(world, principle) > 0]
        free = {number: text for number, text in free.items() if merit(world, text) < 0}
        possible = {"add": bool(new), "remove": bool(free)}
    else:
        possible = {"add": bool(new), "modify": bool(free and new), "remove": bool(free), "merge": len(free) > 1}
    options = [op for op, is_possible in possible.items() if is_possible]
    if not options:
        return []
    op = options[int(rng.integers(len(options)))]
    ids = tuple(rng.permutation(list(free)).tolist()[: {"add": 0, "merge": 2}.get(op, 1)])
    if op == "remove":
        return [_PrincipleEdit(op, ids)]
    if op == "merge":
        return [_PrincipleEdit(op, ids, " ".join(free[number] for number in ids))]
    return [_PrincipleEdit(op, ids, new[int(rng.integers(len(new)))])]


def _faulty(edits: Sequence[_PrincipleEdit], principles: int, rng: np.random.Generator) -> str:
    """Return an invalid reply, with one of the faults of real replies."""
    faults = (
        [_PrincipleEdit("remove", (principles + 7,))],
        [_PrincipleEdit("add", (), " ")],
        [_PrincipleEdit("merge", (1,), "Check.")],
        [_PrincipleEdit("modify", (1,), "Check."), _PrincipleEdit("modify", (1,), "Check twice.")],
        [_PrincipleEdit("praise", (1,))],
    )
    chosen = int(rng.integers(len(faults) + 1))
    if chosen == len(faults):
        return "I would keep the principles as they are, and add one on checking."
    return _reply([*edits, *faults[chosen]])
