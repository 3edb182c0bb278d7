"""System prompts as programs: a preamble and numbered principles, which edits change as a patch changes a file.

E-SPL, section 3.2: its `git.apply`. A model writes the edits, so what is wrong with them is counted by its reason, and
what they write into a system prompt is cleaned: no id of its own, no token of a chat template.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from evorun.errors import ConfigError
from evorun.models.base import Reply
from evorun.runs.files import read_regular
from evorun.tasks.json_text import read_object, replace_lone_surrogates
from evorun.tasks.tags import escape_tags, tags_in
from evorun.tasks.thinking import without_thinking

Op = Literal["add", "modify", "merge", "remove"]
OPS: tuple[Op, ...] = ("add", "modify", "merge", "remove")
Reason = Literal[
    "rejected",  # the engine refused the request
    "cut_off",
    "not_json",
    "no_edits",
    "no_lessons",  # where they have a call of their own
    "unknown_op",
    "unknown_id",
    "several_ids",  # of an operation on one principle
    "merge_of_one",
    "empty_text",
    "too_long",
    "own_ids",  # within its text: numbers are given by the place in the list
    "conflict",  # with another operation on the same principle, which is refused, too
    "duplicate",  # the text of another principle, or the principle's own; or the same operation once more
    "too_many",
    "in_refused_list",  # good by itself, in a list that applies whole or not at all
]
"""Why an edit, or a whole reply, was refused."""
INTRODUCTION = "These principles have helped with problems like the one to come:"
ANALYSIS_CHARS = 4_000
"""Of the analysis before the edits (ours): under constrained decoding a model may otherwise never end it."""
PREAMBLE = 0
"""The number of the preamble, where edits may rewrite it. Principles are counted from 1."""
_BRACKETED_ID = r"\[\s?[Gg]\s?\d{1,5}\s?\]"
_LEADING_ID = re.compile(
    rf"(?:[-*_`]{{0,3}}\s?[*_`]{{0,3}}(?:{_BRACKETED_ID}|[Gg]\d{{1,5}}(?=[*_`]{{0,3}}[:.)]))[*_`:.)]{{0,4}}\s*)+"
)
OWN_ID = re.compile(rf"{_BRACKETED_ID}|^[-*_`\s]{{0,5}}[Gg]\d{{1,5}}[*_`]{{0,3}}[:.)]", re.MULTILINE)
"""Finds an id within a principle's text, where it would pass for the beginning of another principle."""


class Limits(NamedTuple):
    """Bounds of what a model may write into a system prompt; `ours`, the paper only asks for short principles."""

    principles: int
    """Of a system prompt."""
    principle_chars: int
    edits: int
    """Of one reply."""
    preamble_chars: int | None = None
    """Of the preamble, which edits may `modify` as G0; None: they leave it alone."""


class SystemPrompt(NamedTuple):
    """A system prompt of a population."""

    preamble: str
    """The task's own instruction; edits leave it alone unless `Limits.preamble_chars` says otherwise."""
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


def without_id(text: str) -> str:
    """Return a principle's text without the id that a model, or a copied system prompt, has put in front of it."""
    text = text.strip()
    found = _LEADING_ID.match(text)
    return text[found.end() :] if found else text


class Edit(NamedTuple):
    """An operation of a model's, as it was read: not checked."""

    op: str
    ids: tuple[int, ...] = ()
    """Numbers of principles, each once; 0: the preamble; -1: an id that is none. Empty: of `add`."""
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
    preamble: str | None = None
    """None: it is as it was."""

    @property
    def figures(self) -> dict[str, float]:
        """The counts as a step records them."""
        return {
            **{f"edits_{op}": float(count) for op, count in Counter(edit.op for edit in self.edits).items()},
            **{f"edits_refused_{reason}": float(count) for reason, count in self.refused.items()},
        }


def patch(
    principles: Sequence[str], reply: Reply, limits: Limits, *, partial: bool = False, preamble: str = ""
) -> Patched:
    """Apply the edits that a reply lists; see `apply_edits`.

    Their texts, and the analysis, are made inert, but for the tags that the system prompt itself has: those of the
    task's tool, say, of which its instruction speaks.
    """
    known = tags_in("\n".join((preamble, *principles)))
    try:
        edits = read_edits(reply, known)
        patched = apply_edits(principles, edits, limits, partial=partial, preamble=preamble)
    except Refused as refused:
        patched = Patched(None, (), {refused.args[0]: 1})
    said = _object_in(reply).get("analysis")
    return patched._replace(analysis=_cleaned(said, known) if isinstance(said, str) else "")


def clean_analysis(said: str, prompt: SystemPrompt) -> str:
    """Return a model's words about a system prompt as others are shown them: inert as its edits are, and bounded."""
    return _cleaned(said, tags_in(prompt.text))


def _cleaned(said: str, known: Sequence[str]) -> str:
    return escape_tags(replace_lone_surrogates(said).strip(), known)[:ANALYSIS_CHARS]


def read_edits(reply: Reply, known: Sequence[str] = ()) -> list[Edit]:
    """Return the edits that a reply lists under `edits`. Raises Refused where there are none to read.

    known: tags that their texts may have.
    """
    if reply.error is not None:
        raise Refused("rejected")
    if reply.completions[0].truncated:  # the repair of JSON would take half an edit for a whole one
        raise Refused("cut_off")
    listed = _object_in(reply).get("edits")
    if not isinstance(listed, list):
        raise Refused("not_json")
    if not listed:
        raise Refused("no_edits")
    return [_edit(one, known) if isinstance(one, dict) else Edit("") for one in listed]


def apply_edits(
    principles: Sequence[str], edits: Sequence[Edit], limits: Limits, *, partial: bool = False, preamble: str = ""
) -> Patched:
    """Apply a list of edits as one patch: whole or not at all; with `partial` without its bad operations.

    Ids mean the list as it was. Two operations that touch one id contradict each other, unless they are the same: then
    both are bad, since nothing says which of them was meant.
    """
    texts = (preamble, *principles)
    faults = ["too_many" if at >= limits.edits else _fault(texts, one, limits) for at, one in enumerate(edits)]
    sound = {_meaning(one) for one, fault in zip(edits, faults, strict=True) if fault is None}
    touched = Counter(number for _, ids, _ in sound for number in ids)
    good: dict[tuple[str, frozenset[int], str], Edit] = {}
    written: set[str] = set()
    refused: Counter[str] = Counter()
    for edit, fault in zip(edits, faults, strict=True):
        if fault is not None:
            refused[fault] += 1
        elif any(touched[number] > 1 for number in edit.ids):
            refused["conflict"] += 1
        elif (meaning := _meaning(edit)) in good or meaning[-1] in written:
            refused["duplicate"] += 1
        else:
            good[meaning] = edit
            written |= {meaning[-1]} - {""}
    applied = list(good.values())
    while len(changed := _changed(texts, applied)) - 1 > max(limits.principles, len(principles)):
        applied.remove([one for one in applied if one.op == "add"][-1])
        refused["too_many"] += 1
    if refused and not partial:
        refused.update({"in_refused_list": len(applied)} if applied else {})
        applied = []
    if not applied:
        return Patched(None, (), refused)
    rewritten = changed[0] if any(PREAMBLE in one.ids for one in applied) else None
    return Patched(changed[1:], tuple(applied), refused, preamble=rewritten)


def apply_proposals(
    principles: Sequence[str], proposals: Sequence[Edit], limits: Limits, *, preamble: str = ""
) -> Patched:
    """Apply those of several reviewers' edits that agree with all others, up to as many as one reply may have."""
    # Whether two of them conflict must not hang on which of the two is beyond the bound.
    agreed = apply_edits(principles, proposals, limits._replace(edits=len(proposals)), partial=True, preamble=preamble)
    patched = apply_edits(principles, agreed.edits, limits, partial=True, preamble=preamble)
    return patched._replace(refused=Counter(agreed.refused) + Counter(patched.refused))


def reply_schema(principles: int, limits: Limits) -> dict[str, Any]:
    """Return the JSON schema of a reply with edits on so many principles: an analysis, then the edits."""
    analysis = {"type": "string", "maxLength": ANALYSIS_CHARS}
    text = _text(limits.principle_chars)
    ids = {"type": "string", "enum": [f"G{number}" for number in range(1, principles + 1)]}
    shapes = [_shape(op=_constant("add"), text=text)]
    if principles:
        shapes.append(_shape(op=_constant("modify"), id=ids, text=text))
        shapes.append(_shape(op=_constant("remove"), id=ids))
    if limits.preamble_chars is not None:
        shapes.append(_shape(op=_constant("modify"), id=_constant(f"G{PREAMBLE}"), text=_text(limits.preamble_chars)))
    if principles > 1:
        several = {"type": "array", "items": ids, "minItems": 2, "maxItems": principles}
        shapes.append(_shape(op=_constant("merge"), ids=several, text=text))
    return _shape(analysis=analysis, edits={"type": "array", "items": {"anyOf": shapes}, "maxItems": limits.edits})


def _text(chars: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": chars}


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
    text = without_thinking(reply.completions[0].text)
    return read_object(text, "edits") or read_object(text, "analysis") or {}


def _edit(entry: dict[str, Any], known: Sequence[str]) -> Edit:
    op, text, ids = entry.get("op"), entry.get("text"), entry.get("ids", entry.get("id"))
    op = op.strip().lower() if isinstance(op, str) else ""
    named = [] if op == "add" else ids if isinstance(ids, list) else [ids]
    return Edit(
        op=op,
        ids=tuple(dict.fromkeys(map(_number, named))),
        text=escape_tags(without_id(replace_lone_surrogates(text)), known).strip() if isinstance(text, str) else "",
    )


def _number(name: Any) -> int:
    digits = str(name).strip(" []().").upper().removeprefix("G") if isinstance(name, str | int) else ""
    return int(digits) if len(digits) < 6 and digits.isdecimal() else -1


def _meaning(edit: Edit) -> tuple[str, frozenset[int], str]:
    """Return what two edits that do the same have in common."""
    return edit.op, frozenset(edit.ids), edit.text if edit.op != "remove" else ""


def _fault(texts: Sequence[str], edit: Edit, limits: Limits) -> Reason | None:
    """Return what is wrong with an edit by itself. texts: the preamble, then the principles."""
    if edit.op not in OPS:
        return "unknown_op"
    rewrites = (edit.op, edit.ids) == ("modify", (PREAMBLE,)) and limits.preamble_chars is not None
    if edit.op != "add" and not rewrites and not (edit.ids and all(PREAMBLE < one < len(texts) for one in edit.ids)):
        return "unknown_id"
    if edit.op in ("modify", "remove") and len(edit.ids) > 1:
        return "several_ids"
    if edit.op == "merge" and len(edit.ids) < 2:
        return "merge_of_one"
    if edit.op == "remove":
        return None
    if not edit.text:
        return "empty_text"
    if len(edit.text) > (limits.preamble_chars or 0 if rewrites else limits.principle_chars):
        return "too_long"
    if OWN_ID.search(edit.text):
        return "own_ids"
    replaced = edit.ids if edit.op == "merge" else ()
    return "duplicate" if edit.text in (one for at, one in enumerate(texts) if at not in replaced) else None


def _changed(texts: Sequence[str], edits: Sequence[Edit]) -> tuple[str, ...]:
    """Return preamble and principles after edits without faults; a merged one stands where the first of its own did."""
    changed: dict[int, str] = dict(enumerate(texts))
    for edit in edits:
        for number in edit.ids:
            stays = edit.op != "remove" and number == min(edit.ids)
            changed[number] = edit.text if stays else ""
    added = [edit.text for edit in edits if edit.op == "add"]
    return (changed.pop(PREAMBLE), *filter(None, changed.values()), *added)


def read_roots(given: Any, others: Any) -> list[tuple[str, ...]]:
    """Return the principles of each root: those of `method.root_principles`, then of each of `method.other_roots`.

    Raises ConfigError as `read_principles` does, and for two roots that are the same.
    """
    if others is not None and not isinstance(others, list):
        raise ConfigError(f"method.other_roots: expected a list of lists or files, got {others!r:.200}")
    named = [(f"method.other_roots[{number}]", one) for number, one in enumerate(others or ())]
    roots: list[tuple[str, ...]] = []
    for key, one in [("method.root_principles", given), *named]:
        principles = read_principles(one, key)
        if principles in roots:
            raise ConfigError(
                f"{key}: expected other principles than those of the roots before it; method.prompts "
                "draws one root several times"
            )
        roots.append(principles)
    return roots


def read_principles(given: Any, key: str) -> tuple[str, ...]:
    """Return the principles that a setting names, without ids in front of them.

    given: a list of texts, or the path of a file: a JSON list of them where its name ends in .json, else plain text
    with blank lines between principles. None: there are none. key: the setting, for what is wrong with it. Raises
    ConfigError for anything else, for a principle without words or with an id within its text, and for one that is
    there twice.
    """
    texts = _in_file(Path(given).expanduser(), key) if isinstance(given, str) else [] if given is None else given
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise ConfigError(f"{key}: expected a list of texts or a file with one, got {given!r:.200}")
    principles = tuple(without_id(one).strip() for one in texts)
    for number, one in enumerate(principles, 1):
        if not one or one in principles[: number - 1]:
            fault = "is there twice" if one else "has no words"
            raise ConfigError(f"{key}: expected principles that differ, number {number} {fault}")
        if found := OWN_ID.search(one):
            raise ConfigError(
                f"{key}: expected one principle an entry, number {number} has the id {found[0].strip()} in its text; "
                "make two entries of it, or leave the id out"
            )
    return principles


def _in_file(path: Path, key: str) -> Any:
    try:
        text = read_regular(path).decode()
        return msgspec.json.decode(text) if path.suffix == ".json" else re.split(r"\n[ \t\r]*\n", text.strip())
    except OSError as error:
        raise ConfigError(f"{key}: cannot read '{path}': {error.strerror}") from error
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigError(f"{key}: '{path}' is neither text nor a JSON list of texts: {error}") from error
