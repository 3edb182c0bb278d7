"""What the tasks with a pairwise judge share: the schema of its reply and the reading of its verdict."""

import re
from typing import Any

from evorun.runs.candidates import Verdict
from evorun.tasks.capabilities import Judgment
from evorun.tasks.json_text import read_object, well_formed

REASONING_CHARS = 200
"""Longest reasoning that the schema lets a judge write (ours: the prompt asks for one sentence)."""

REASONED_CHARS = 400
"""The same where the reasoning comes first and weighs several points (ours)."""


def _schema(reasoning_chars: int, *order: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "solution": {"type": "string", "enum": ["A", "B", "T"]},
        "reasoning": {"type": "string", "maxLength": reasoning_chars},
    }
    return {
        "type": "object",
        "properties": {key: fields[key] for key in order},
        "required": list(order),
        "additionalProperties": False,
    }


VERDICT_SCHEMA = _schema(REASONING_CHARS, "solution", "reasoning")
"""Verdict first, then one sentence of reasoning (Duel-Evolve, B.1.4)."""
REASONED_VERDICT_SCHEMA = _schema(REASONED_CHARS, "reasoning", "solution")
"""One sentence of reasoning, then the verdict (B.2.4)."""

_VERDICTS: dict[str, Verdict] = {"a": "A", "b": "B", "t": "T", "tie": "T"}
_DECORATION = re.compile(r"^(?:candidate|solution|response)\s+|[\s\"'`*().\[\]:]+")
_STATED = re.compile(r'"solution"\s*:\s*"([^"]{0,40})"')


def parse_judgment(text: str) -> Judgment:
    """Return a judge's verdict and reason; `invalid` when it does not say A, B or T plainly. Never raises.

    Nothing is guessed from prose: an unclear verdict must count as non-decisive, not as a preference.
    """
    reply = read_object(text)
    if reply is None:
        return Judgment(verdict=_verdict(text))
    reason = reply.get("reasoning")
    stated = {_verdict(value) for value in _STATED.findall(text)} - {"invalid"}
    return Judgment(
        verdict="invalid" if len(stated) > 1 else _verdict(reply.get("solution")),
        reason=well_formed(reason) if isinstance(reason, str) else "",
    )


def _verdict(value: object) -> Verdict:
    if not isinstance(value, str) or len(value) > 40:
        return "invalid"
    return _VERDICTS.get(_DECORATION.sub("", value.strip().lower()), "invalid")
