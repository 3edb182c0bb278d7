"""System prompts as programs: a preamble and numbered principles, which edits change as a patch changes a file.

E-SPL, section 3.2: its `git.apply`. A model writes the edits, so faults are counted by reason, and the text that enters
a system prompt is cleaned: no ids within it, no tokens of a chat template.
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
from evorun.tasks.json_text import object_schema, read_object, replace_lone_surrogates
from evorun.tasks.tags import escape_tags, tags_in
from evorun.tasks.thinking import without_thinking

Op = Literal["add", "modify", "merge", "remove"]
OPS: tuple[Op, ...] = ("add", "modify", "merge", "remove")
Reason = Literal[
    "rejected",  # the engine refused the request
    "cut_off",
    "not_json",
    "no_edits",
    "no_lessons",  # where lessons have a separate call
    "unknown_op",
    "unknown_id",
    "several_ids",  # of an operation on one principle
    "merge_of_one",
    "empty_text",
    "too_long",
    "own_ids",  # an id within its text: the position in the list gives the number
    "conflict",  # with another operation on the same principle; both are refused
    "duplicate",  # of another principle's text, of the principle's present text, or of an earlier operation
    "too_many",
    "in_refused_list",  # valid, but in a list that applies as a whole or not at all
]
"""Why an edit, or a whole reply, was refused."""
INTRODUCTION = "These principles have helped with problems like the one to come:"
ANALYSIS_CHARS = 4_000
"""Maximum length of the analysis (ours): under constrained decoding a model might otherwise never end it."""
PREAMBLE = 0
"""The number of the preamble, where edits may rewrite it. Principles are numbered from 1."""
_BRACKETED_ID = r"\[\s?[Gg]\s?\d{1,5}\s?\]"
_LEADING_ID = re.compile(
    rf"(?:[-*_`]{{0,3}}\s?[*_`]{{0,3}}(?:{_BRACKETED_ID}|[Gg]\d{{1,5}}(?=[*_`]{{0,3}}[:.)]))[*_`:.)]{{0,4}}\s*)+"
)
OWN_ID = re.compile(rf"{_BRACKETED_ID}|^[-*_`\s]{{0,5}}[Gg]\d{{1,5}}[*_`]{{0,3}}[:.)]", re.MULTILINE)
"""Finds an id within a principle's text, which would look like the beginning of another principle."""


class Limits(NamedTuple):
    """Limits on what a model may write into a system prompt (ours; the paper only asks for short principles)."""

    principles: int
    """Maximum principles of a system prompt."""
    principle_chars: int
    edits: int
    """Maximum edits of one reply."""
    preamble_chars: int | None = None
    """Maximum characters of the preamble, which edits may `modify` as G0; None: it is fixed."""


class SystemPrompt(NamedTuple):
    """A system prompt of a population."""

    preamble: str
    """The task's instruction; fixed unless `Limits.preamble_chars` is set."""
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
    """Return a principle's text without a leading id, which a model or a copied system prompt may have added."""
    text = text.strip()
    leading = _LEADING_ID.match(text)
    return text[leading.end() :] if leading else text


class Edit(NamedTuple):
    """An operation as parsed from a model's reply, unchecked."""

    op: str
    ids: tuple[int, ...] = ()
    """Distinct numbers of principles; 0: the preamble; -1: an invalid id. Empty for `add`."""
    text: str = ""
    """Ignored for `remove`."""


class Refused(Exception):
    """A reply from which no edits can be read; `args[0]` is the reason."""


class Patched(NamedTuple):
    """The outcome of a list of edits."""

    principles: tuple[str, ...] | None
    """None: nothing was applied."""
    edits: tuple[Edit, ...] = ()
    """The applied edits."""
    refused: Mapping[str, int] = {}
    """Counts of refused operations, or of replies without any, by reason."""
    analysis: str = ""
    """The model's text before the edits."""
    preamble: str | None = None
    """The new preamble; None where it is unchanged."""

    @property
    def figures(self) -> dict[str, float]:
        """The counts for a step's record."""
        return {
            **{f"edits_{op}": float(count) for op, count in Counter(edit.op for edit in self.edits).items()},
            **{f"edits_refused_{reason}": float(count) for reason, count in self.refused.items()},
        }


def patch(
    principles: Sequence[str], reply: Reply, limits: Limits, *, partial: bool = False, preamble: str = ""
) -> Patched:
    """Apply the edits that a reply lists; see `apply_edits`.

    Tags in their texts and in the analysis are escaped, except those that the system prompt itself has, such as those
    of the task's tool.
    """
    known = tags_in("\n".join((preamble, *principles)))
    try:
        edits = read_edits(reply, known)
        patched = apply_edits(principles, edits, limits, partial=partial, preamble=preamble)
    except Refused as refused:
        patched = Patched(None, (), {refused.args[0]: 1})
    analysis = _object_in(reply).get("analysis")
    return patched._replace(analysis=_clean(analysis, known) if isinstance(analysis, str) else "")


def clean_analysis(text: str, prompt: SystemPrompt) -> str:
    """Return a model's analysis of a system prompt for use in prompts: its tags escaped, its length limited."""
    return _clean(text, tags_in(prompt.text))


def _clean(text: str, known: Sequence[str]) -> str:
    return escape_tags(replace_lone_surrogates(text).strip(), known)[:ANALYSIS_CHARS]


def read_edits(reply: Reply, known: Sequence[str] = ()) -> list[Edit]:
    """Return the edits that a reply lists under `edits`. Raises Refused where there are none to read.

    known: tags that their texts may have.
    """
    if reply.error is not None:
        raise Refused("rejected")
    if reply.completions[0].truncated:  # JSON repair would take half an edit for a complete one
        raise Refused("cut_off")
    entries = _object_in(reply).get("edits")
    if not isinstance(entries, list):
        raise Refused("not_json")
    if not entries:
        raise Refused("no_edits")
    return [_parse_edit(entry, known) if isinstance(entry, dict) else Edit("") for entry in entries]


def apply_edits(
    principles: Sequence[str], edits: Sequence[Edit], limits: Limits, *, partial: bool = False, preamble: str = ""
) -> Patched:
    """Apply a list of edits as one patch: all or none; with `partial`, all but the faulty ones.

    Ids refer to the original list. Different operations on the same id conflict; both are faulty, since nothing says
    which was meant.
    """
    texts = (preamble, *principles)
    faults = ["too_many" if at >= limits.edits else _find_fault(texts, edit, limits) for at, edit in enumerate(edits)]
    valid = {_effect(edit) for edit, fault in zip(edits, faults, strict=True) if fault is None}
    touched = Counter(number for _, ids, _ in valid for number in ids)
    good: dict[tuple[str, frozenset[int], str], Edit] = {}
    written: set[str] = set()
    refused: Counter[str] = Counter()
    for edit, fault in zip(edits, faults, strict=True):
        if fault is not None:
            refused[fault] += 1
        elif any(touched[number] > 1 for number in edit.ids):
            refused["conflict"] += 1
        elif (effect := _effect(edit)) in good or effect[-1] in written:
            refused["duplicate"] += 1
        else:
            good[effect] = edit
            written |= {effect[-1]} - {""}
    applied = list(good.values())
    while len(changed := _apply_valid(texts, applied)) - 1 > max(limits.principles, len(principles)):
        applied.remove([edit for edit in applied if edit.op == "add"][-1])
        refused["too_many"] += 1
    if refused and not partial:
        refused.update({"in_refused_list": len(applied)} if applied else {})
        applied = []
    if not applied:
        return Patched(None, (), refused)
    rewritten = changed[0] if any(PREAMBLE in edit.ids for edit in applied) else None
    return Patched(changed[1:], tuple(applied), refused, preamble=rewritten)


def apply_proposals(
    principles: Sequence[str], proposals: Sequence[Edit], limits: Limits, *, preamble: str = ""
) -> Patched:
    """Apply the edits of several reviewers that conflict with no other, up to the limit of one reply."""
    # First without the limit: whether two edits conflict must not depend on which of them exceeds it.
    agreed = apply_edits(principles, proposals, limits._replace(edits=len(proposals)), partial=True, preamble=preamble)
    patched = apply_edits(principles, agreed.edits, limits, partial=True, preamble=preamble)
    return patched._replace(refused=Counter(agreed.refused) + Counter(patched.refused))


def reply_schema(principles: int, limits: Limits) -> dict[str, Any]:
    """Return the JSON schema of a reply that edits `principles` principles: an analysis, then the edits."""
    analysis = {"type": "string", "maxLength": ANALYSIS_CHARS}
    text = _text(limits.principle_chars)
    ids = {"type": "string", "enum": [f"G{number}" for number in range(1, principles + 1)]}
    shapes = [object_schema(op=_constant("add"), text=text)]
    if principles:
        shapes.append(object_schema(op=_constant("modify"), id=ids, text=text))
        shapes.append(object_schema(op=_constant("remove"), id=ids))
    if limits.preamble_chars is not None:
        shapes.append(
            object_schema(op=_constant("modify"), id=_constant(f"G{PREAMBLE}"), text=_text(limits.preamble_chars))
        )
    if principles > 1:
        merged_ids = {"type": "array", "items": ids, "minItems": 2, "maxItems": principles}
        shapes.append(object_schema(op=_constant("merge"), ids=merged_ids, text=text))
    return object_schema(
        analysis=analysis, edits={"type": "array", "items": {"anyOf": shapes}, "maxItems": limits.edits}
    )


def _text(chars: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": chars}


def _constant(value: str) -> dict[str, Any]:
    return {"type": "string", "enum": [value]}


def _object_in(reply: Reply) -> dict[str, Any]:
    text = without_thinking(reply.completions[0].text)
    return read_object(text, "edits") or read_object(text, "analysis") or {}


def _parse_edit(entry: dict[str, Any], known: Sequence[str]) -> Edit:
    op, text, ids = entry.get("op"), entry.get("text"), entry.get("ids", entry.get("id"))
    op = op.strip().lower() if isinstance(op, str) else ""
    named = [] if op == "add" else ids if isinstance(ids, list) else [ids]
    return Edit(
        op=op,
        ids=tuple(dict.fromkeys(map(_parse_number, named))),
        text=escape_tags(without_id(replace_lone_surrogates(text)), known).strip() if isinstance(text, str) else "",
    )


def _parse_number(name: Any) -> int:
    digits = str(name).strip(" []().").upper().removeprefix("G") if isinstance(name, str | int) else ""
    return int(digits) if len(digits) < 6 and digits.isdecimal() else -1


def _effect(edit: Edit) -> tuple[str, frozenset[int], str]:
    """Return a value that is equal for edits with the same effect."""
    return edit.op, frozenset(edit.ids), edit.text if edit.op != "remove" else ""


def _find_fault(texts: Sequence[str], edit: Edit, limits: Limits) -> Reason | None:
    """Return the fault of a single edit, or None. texts: the preamble, then the principles."""
    if edit.op not in OPS:
        return "unknown_op"
    rewrites = (edit.op, edit.ids) == ("modify", (PREAMBLE,)) and limits.preamble_chars is not None
    if (
        edit.op != "add"
        and not rewrites
        and not (edit.ids and all(PREAMBLE < number < len(texts) for number in edit.ids))
    ):
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
    return "duplicate" if edit.text in (text for at, text in enumerate(texts) if at not in replaced) else None


def _apply_valid(texts: Sequence[str], edits: Sequence[Edit]) -> tuple[str, ...]:
    """Return preamble and principles after valid edits; a merged principle takes the place of its first source."""
    changed: dict[int, str] = dict(enumerate(texts))
    for edit in edits:
        for number in edit.ids:
            stays = edit.op != "remove" and number == min(edit.ids)
            changed[number] = edit.text if stays else ""
    added = [edit.text for edit in edits if edit.op == "add"]
    return (changed.pop(PREAMBLE), *filter(None, changed.values()), *added)


def read_roots(first: Any, others: Any) -> list[tuple[str, ...]]:
    """Return the principles of each root: those of `method.root_principles`, then of each of `method.other_roots`.

    Raises ConfigError as `read_principles` does, and for two roots that are the same.
    """
    if others is not None and not isinstance(others, list):
        raise ConfigError(f"method.other_roots: expected a list of lists or files, got {others!r:.200}")
    settings = [(f"method.other_roots[{number}]", root) for number, root in enumerate(others or ())]
    roots: list[tuple[str, ...]] = []
    for key, setting in [("method.root_principles", first), *settings]:
        principles = read_principles(setting, key)
        if principles in roots:
            raise ConfigError(
                f"{key}: expected principles that differ from those of earlier roots; method.prompts "
                "draws one root several times"
            )
        roots.append(principles)
    return roots


def read_principles(setting: Any, key: str) -> tuple[str, ...]:
    """Return the principles that a setting names, without ids in front of them.

    setting: a list of texts, or the path of a file: a JSON list if its name ends in .json, else plain text with blank
    lines between principles. None: there are none. key: the setting's name, for errors. Raises ConfigError for anything
    else, for an empty or repeated principle, and for one with an id within its text.
    """
    texts = (
        _read_file(Path(setting).expanduser(), key) if isinstance(setting, str) else [] if setting is None else setting
    )
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{key}: expected a list of texts or a file with one, got {setting!r:.200}")
    principles = tuple(without_id(text).strip() for text in texts)
    for number, principle in enumerate(principles, 1):
        if not principle or principle in principles[: number - 1]:
            fault = "repeats an earlier one" if principle else "is empty"
            raise ConfigError(f"{key}: expected distinct, non-empty principles; number {number} {fault}")
        if own_id := OWN_ID.search(principle):
            raise ConfigError(
                f"{key}: expected one principle per entry, number {number} has the id {own_id[0].strip()} in its text; "
                "split it into two entries, or remove the id"
            )
    return principles


def _read_file(path: Path, key: str) -> Any:
    try:
        text = read_regular(path).decode()
        return msgspec.json.decode(text) if path.suffix == ".json" else re.split(r"\n[ \t\r]*\n", text.strip())
    except OSError as error:
        raise ConfigError(f"{key}: cannot read '{path}': {error.strerror}") from error
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigError(f"{key}: '{path}' is neither text nor a JSON list of texts: {error}") from error
