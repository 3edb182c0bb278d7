"""A model's errors and score of a response, for tasks that answer in JSON (Lyria, sections 4.1.1 and 4.1.4)."""

import math
from typing import Any

import msgspec

from evorun.tasks.json_text import read_object, well_formed
from evorun.tasks.puzzles.reading import last_score

REASONING_CHARS = 1200
"""Longest reasoning that the schemas let an evaluator write (ours)."""
ERROR_CHARS = 300
"""Longest description of one error (ours)."""
_MOST_ERRORS = 10
"""As many as the schema allows; the paper's ablations go up to 9."""
_NO_ERROR = ("none", "no error", "no errors")

_REASONING = {"type": "string", "maxLength": REASONING_CHARS}
_ERROR = {"type": "string", "maxLength": ERROR_CHARS}


def _schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


ERRORS_SCHEMA = _schema(reasoning=_REASONING, errors={"type": "array", "items": _ERROR, "maxItems": _MOST_ERRORS})
"""Reasoning, then a list of errors."""
FITNESS_SCHEMA = _schema(reasoning=_REASONING, score={"type": "number"})
"""Reasoning, then a score, in [0, 100] as the prompts ask."""


def read_errors(text: str, max_errors: int) -> list[str] | None:
    """Return the errors that a completion names, the first `max_errors` of them, each once and on one line.

    None when it has no list of errors. Never raises.
    """
    reply = read_object(text)
    named = reply.get("errors") if reply is not None else None
    if isinstance(named, str):
        named = [named]
    if not isinstance(named, list):
        return None
    lines = [" ".join(well_formed(error).split()) for error in named if isinstance(error, str)]
    errors = dict.fromkeys(line[:ERROR_CHARS] for line in lines if line.casefold().strip(" .") not in ("", *_NO_ERROR))
    return list(errors)[:max_errors]


def read_fitness(text: str) -> float | None:
    """Return the score that a completion gives, brought into [0, 100]; None without any. Never raises.

    A number under `score` in its JSON object counts, else the last one in the text; see `last_score`.
    """
    reply = read_object(text)
    score = reply.get("score") if reply is not None else None
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        score = last_score(text)
    return None if score is None else float(min(100, max(0, score)))


def bulleted(errors: list[str]) -> str:
    """Return errors as prompts show them: one a line."""
    return "\n".join(f"- {error}" for error in errors)


# --- in simulated runs ---

EVALUATIONS = ("fitness", "errors")
"""Roles that `evaluation` plays."""
_SIMULATED_ERRORS = ("The last step does not follow.", "The result was not checked.", "A case is left out.")
_SOUND = 60
"""Simulated scores of what is taken for right are higher, others lower (ours)."""


def evaluation(role: str, sound: bool, luck: float) -> str:
    """Return what a simulated evaluator replies.

    role: one of `EVALUATIONS`. sound: whether it takes the response for right. luck: uniform in [0, 1).
    """
    if role == "errors":
        named = () if sound else _SIMULATED_ERRORS[: 1 + int(luck * len(_SIMULATED_ERRORS))]
        return _reply(errors=named)
    return _reply(score=round(_SOUND + (100 - _SOUND) * luck if sound else _SOUND * luck, 1))


def _reply(**judgment: Any) -> str:
    return msgspec.json.encode({"reasoning": "It goes through the steps.", **judgment}).decode()
