"""System prompts as programs: a preamble and numbered principles, which edits change as a patch changes a file.

E-SPL, section 3.2: its `git.apply`. A model writes the edits, so what is wrong with them is counted by its reason.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from evorun.models.base import Reply
from evorun.tasks.json_text import read_object, well_formed
from evorun.tasks.thinking import without_thinking

Op = Literal["add", "modify", "merge", "remove"]
OPS: tuple[Op, ...] = ("add", "modify", "merge", "remove")
Reason = Literal[
    "rejected",  # the engine refused the request
    "cut_off",
    "not_json",
    "no_edits",
    "unknown_op",
    "unknown_id",
    "several_ids",  # of an operation on one principle
    "merge_of_one",
    "empty_text",
    "too_long",
    "conflict",  # with another operation on the same principle
    "duplicate",  # the text of another principle, or the principle's own
    "too_many",
    "in_refused_list",  # good by itself, in a list that applies whole or not at all
]
"""Why an edit, or a whole reply, was refused."""
INTRODUCTION = "These principles have helped with problems like the one to come:"
ANALYSIS_CHARS = 4_000
"""Of the analysis before the edits (ours): under constrained decoding a model may otherwise never end it."""


class Limits(NamedTuple):
    """Bounds of what a model may write into a system prompt; `ours`, the paper only asks for short principles."""

    principles: int
    """Of a system prompt."""
    principle_chars: int
    edits: int
    """Of one reply."""


class SystemPrompt(NamedTuple):
    """A system prompt of a population."""

    preamble: str
    """The task's own instruction, which edits leave alone."""
    principles: tuple[str, ...] = ()
    """Known to models by their numbers: G1, G2, ..."""

    @property
    def text(self) -> str:
        """The system prompt as the policy sees it."""
        learned = (INTRODUCTION, numbered(self.principles)) if self.principles else ()
        return "\n\n".join(filter(None, (self.preamble, *learned)))


def numbered(principles: Sequence[str]) -> str:
    """Return principles as prompts show them, each with its id."""
    return "\n\n".join(f"[G{number}] {text}" for number, text in enumerate(principles, 1))


class Edit(NamedTuple):
    """An operation of a model's, as it was read: not checked."""

    op: str
    ids: tuple[int, ...] = ()
    """Numbers of principles, each once, counted from 1; 0: an id that is none. Empty: of `add`."""
    text: str = ""
    """Of `remove` it means nothing."""


class Refused(Exception):
    """A reply from which no edits can be read; `args[0]` is the reason."""


class Patched(NamedTuple):
    """The outcome of a list of edits."""

    principles: tuple[str, ...] | None
    """None: nothing was applied."""
    edits: tuple[Edit, ...] = ()
    """Those that were applied."""
    refused: Mapping[str, int] = {}
    """Operations that were not, or replies without any, by reason."""
    analysis: str = ""
    """The model's words before the edits."""

    @property
    def figures(self) -> dict[str, float]:
        """The counts as a step records them."""
        return {
            **{f"edits_{op}": float(count) for op, count in Counter(edit.op for edit in self.edits).items()},
            **{f"edits_refused_{reason}": float(count) for reason, count in self.refused.items()},
        }


def patch(principles: Sequence[str], reply: Reply, limits: Limits, *, partial: bool = False) -> Patched:
    """Apply the edits that a reply lists; see `apply_edits`."""
    try:
        patched = apply_edits(principles, read_edits(reply), limits, partial=partial)
    except Refused as refused:
        patched = Patched(None, (), {refused.args[0]: 1})
    said = _object_in(reply).get("analysis")
    analysis = well_formed(said).strip()[:ANALYSIS_CHARS] if isinstance(said, str) else ""
    return patched._replace(analysis=analysis)


def read_edits(reply: Reply) -> list[Edit]:
    """Return the edits that a reply lists under `edits`. Raises Refused where there are none to read."""
    if reply.error is not None:
        raise Refused("rejected")
    if reply.completions[0].truncated:  # the repair of JSON would take half an edit for a whole one
        raise Refused("cut_off")
    listed = _object_in(reply).get("edits")
    if not isinstance(listed, list):
        raise Refused("not_json")
    if not listed:
        raise Refused("no_edits")
    return [_edit(one) if isinstance(one, dict) else Edit("") for one in listed]


def apply_edits(principles: Sequence[str], edits: Sequence[Edit], limits: Limits, *, partial: bool = False) -> Patched:
    """Apply a list of edits as one patch: whole or not at all; with `partial` without its bad operations.

    Ids mean the list as it was. Of two operations on one id the later one is the bad one.
    """
    good: list[Edit] = []
    refused: Counter[str] = Counter()
    for number, edit in enumerate(edits):
        reason = "too_many" if number >= limits.edits else _fault(principles, edit, good, limits)
        if reason is None:
            good.append(edit)
        else:
            refused[reason] += 1
    while len(changed := _changed(principles, good)) > max(limits.principles, len(principles)):
        good.remove([one for one in good if one.op == "add"][-1])
        refused["too_many"] += 1
    if refused and not partial:
        refused.update({"in_refused_list": len(good)} if good else {})
        good = []
    return Patched(changed, tuple(good), refused) if good else Patched(None, (), refused)


def reply_schema(principles: int, limits: Limits) -> dict[str, Any]:
    """Return the JSON schema of a reply with edits on so many principles: an analysis, then the edits."""
    analysis = {"type": "string", "maxLength": ANALYSIS_CHARS}
    text = {"type": "string", "minLength": 1, "maxLength": limits.principle_chars}
    ids = {"type": "string", "enum": [f"G{number}" for number in range(1, principles + 1)]}
    shapes = [_shape(op=_constant("add"), text=text)]
    if principles:
        shapes.append(_shape(op=_constant("modify"), id=ids, text=text))
        shapes.append(_shape(op=_constant("remove"), id=ids))
    if principles > 1:
        several = {"type": "array", "items": ids, "minItems": 2, "maxItems": principles}
        shapes.append(_shape(op=_constant("merge"), ids=several, text=text))
    return _shape(analysis=analysis, edits={"type": "array", "items": {"anyOf": shapes}, "maxItems": limits.edits})


def _constant(value: str) -> dict[str, Any]:
    return {"type": "string", "enum": [value]}


def _shape(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _object_in(reply: Reply) -> dict[str, Any]:
    return read_object(without_thinking(reply.completions[0].text)) or {}


def _edit(entry: dict[str, Any]) -> Edit:
    op, text, ids = entry.get("op"), entry.get("text"), entry.get("ids", entry.get("id"))
    op = op.strip().lower() if isinstance(op, str) else ""
    named = [] if op == "add" else ids if isinstance(ids, list) else [ids]
    return Edit(
        op=op,
        ids=tuple(dict.fromkeys(map(_number, named))),
        text=well_formed(text).strip() if isinstance(text, str) else "",
    )


def _number(name: Any) -> int:
    digits = str(name).strip(" []().").upper().removeprefix("G") if isinstance(name, str | int) else ""
    return int(digits) if len(digits) < 6 and digits.isdecimal() else 0


def _fault(principles: Sequence[str], edit: Edit, good: Sequence[Edit], limits: Limits) -> Reason | None:
    """Return what is wrong with an edit beside the good ones before it."""
    if edit.op not in OPS:
        return "unknown_op"
    if edit.op != "add" and not (edit.ids and all(1 <= one <= len(principles) for one in edit.ids)):
        return "unknown_id"
    if edit.op in ("modify", "remove") and len(edit.ids) > 1:
        return "several_ids"
    if edit.op == "merge" and len(edit.ids) < 2:
        return "merge_of_one"
    if any(set(edit.ids) & set(one.ids) for one in good):
        return "conflict"
    if edit.op == "remove":
        return None
    if not edit.text:
        return "empty_text"
    if len(edit.text) > limits.principle_chars:
        return "too_long"
    replaced = edit.ids if edit.op == "merge" else ()
    others = [text for number, text in enumerate(principles, 1) if number not in replaced]
    return "duplicate" if edit.text in (*others, *(one.text for one in good)) else None


def _changed(principles: Sequence[str], edits: Sequence[Edit]) -> tuple[str, ...]:
    """Return the principles after edits without faults; a merged one stands where the first of its own stood."""
    texts: dict[int, str] = dict(enumerate(principles, 1))
    for edit in edits:
        for number in edit.ids:
            stays = edit.op != "remove" and number == min(edit.ids)
            texts[number] = edit.text if stays else ""
    added = [edit.text for edit in edits if edit.op == "add"]
    return (*filter(None, texts.values()), *added)
