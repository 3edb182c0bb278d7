"""Schemas and parsing of the replies of judges (verdicts on two responses) and evaluators (errors of a response).

The verdicts are Duel-Evolve's (B.1.4, B.2.4), errors and scores are those of Lyria's LLM-based detector and evaluator
(sections 4.1.1 and 4.1.4). `fitness_scores` reads the scores.
"""

import re

from evorun.runs.candidates import Verdict
from evorun.tasks.capabilities import Judgment, PairRating
from evorun.tasks.corrections import read_unless_withdrawn
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import find_object, object_schema, read_object, replace_lone_surrogates
from evorun.tasks.thinking import without_thinking
from evorun.tasks.verdicts import read_verdict

# --- verdicts ---

VERDICT_CHARS = 200
"""Maximum characters of a judge's reasoning in the schema (ours: the prompt asks for one sentence)."""

REASONED_VERDICT_CHARS = 400
"""The same for reasoning before the verdict, which weighs several points (ours)."""

_SOLUTION = {"type": "string", "enum": ["A", "B", "T"]}

VERDICT_SCHEMA = object_schema(solution=_SOLUTION, reasoning={"type": "string", "maxLength": VERDICT_CHARS})
"""Verdict first, then one sentence of reasoning (Duel-Evolve, B.1.4)."""
REASONED_VERDICT_SCHEMA = object_schema(
    reasoning={"type": "string", "maxLength": REASONED_VERDICT_CHARS}, solution=_SOLUTION
)
"""One sentence of reasoning, then the verdict (B.2.4)."""

_VERDICTS: dict[str, Verdict] = {"a": "A", "b": "B", "t": "T", "tie": "T"}
# `solution`, and other keys that judges use for it
_KEYS = ("solution", "winner", "verdict")
_DECORATION = re.compile(r"^(?:candidate|solution|response)\s+|[\s\"'`*().\[\]:]+")
_WHOLE_NUMBER = re.compile(r"\d{1,2}", re.ASCII)
_STATED = re.compile(rf'"(?:{"|".join(_KEYS)})"\s*:\s*"([^"]{{0,40}})"', re.IGNORECASE)


def parse_judgment(text: str) -> Judgment:
    """Return a judge's verdict and reason; `invalid` unless it clearly says A, B or T. Never raises.

    A JSON object's `solution` (or `winner`, or `verdict`) decides; only a text without one is read as prose
    (`read_verdict`). An unclear verdict must count as non-decisive, not as a preference.
    """
    text = without_thinking(text)
    found = find_object(text, *_KEYS)
    reply = (read_object(text, "reasoning") or {}) if found is None else found.value
    reason = reply.get("reasoning")
    try:
        verdict = read_unless_withdrawn(_read_verdict, text, 0 if found is None else found.end, only_sure=True)
    except ValueError:
        verdict = "invalid"
    return Judgment(verdict=verdict, reason=replace_lone_surrogates(reason) if isinstance(reason, str) else "")


def _read_verdict(text: str) -> Verdict:
    """Return the verdict of a text. Raises ValueError where it has none."""
    # A reply that starts over may state another verdict, and nothing says which is meant.
    stated = {_normalize_verdict(value) for value in _STATED.findall(text)} - {"invalid"}
    if reply := read_object(text, *_KEYS) or read_object(text, "reasoning"):
        verdict = _normalize_verdict(next((reply[key] for key in _KEYS if key in reply), None))
    else:
        verdict = _normalize_verdict(text)
        verdict = read_verdict(text) if verdict == "invalid" else verdict
    if verdict == "invalid" or len(stated) > 1:
        raise ValueError("no_verdict: expected A, B or T")
    return verdict


def _normalize_verdict(value: object) -> Verdict:
    if not isinstance(value, str) or len(value) > 40:
        return "invalid"
    said = value.strip().lower()
    return _VERDICTS.get(said) or _VERDICTS.get(_DECORATION.sub("", said), "invalid")


# --- ratings of two responses ---

MIN_RATING, MAX_RATING = 1, 10
_RATING = {"type": "integer", "minimum": MIN_RATING, "maximum": MAX_RATING}
RATINGS_SCHEMA = object_schema(
    reasoning={"type": "string", "maxLength": REASONED_VERDICT_CHARS}, rating_a=_RATING, rating_b=_RATING
)
"""Reasoning, then a rating of each response (V1-Infer, arXiv 2603.04304)."""


def parse_ratings(text: str) -> PairRating:
    """Return both ratings of a completion and its reason; no ratings unless both are from 1 to 10. Never raises.

    The last JSON object with `rating_a` decides.
    """
    reply = read_object(without_thinking(text), "rating_a") or {}
    ratings = [_read_rating(reply.get(key)) for key in ("rating_a", "rating_b")]
    reason = reply.get("reasoning")
    return PairRating(
        ratings=None if ratings[0] is None or ratings[1] is None else (ratings[0], ratings[1]),
        reason=replace_lone_surrogates(reason) if isinstance(reason, str) else "",
    )


def _read_rating(value: object) -> float | None:
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if MIN_RATING <= value <= MAX_RATING else None


# --- errors and scores ---

REASONING_CHARS = 1200
"""Maximum characters of an evaluator's reasoning in the schemas (ours)."""
ERROR_CHARS = 300
"""Maximum characters of an error's description (ours)."""
# Maximum errors in the schema; the paper's ablations go up to 9
_MAX_ERRORS = 10
_NO_ERROR = ("none", "no error", "no errors")

_REASONING = {"type": "string", "maxLength": REASONING_CHARS}
_ERROR = {"type": "string", "maxLength": ERROR_CHARS}

ERRORS_SCHEMA = object_schema(reasoning=_REASONING, errors={"type": "array", "items": _ERROR, "maxItems": _MAX_ERRORS})
"""Reasoning, then a list of errors."""
FITNESS_SCHEMA = object_schema(reasoning=_REASONING, score={"type": "number"})
"""Reasoning, then a score, in [0, 100] according to the prompts."""


def read_errors(text: str, max_errors: int) -> list[str] | None:
    """Return the first `max_errors` distinct errors that a completion names, each on one line.

    None when it has no list of errors. Never raises.
    """
    reply = read_object(without_thinking(text), "errors")
    entries = None if reply is None else reply["errors"]
    if isinstance(entries, str):
        entries = [entries]
    if not isinstance(entries, list):
        return None
    lines = [" ".join(replace_lone_surrogates(error).split()) for error in entries if isinstance(error, str)]
    errors = dict.fromkeys(
        excerpt(line, ERROR_CHARS) for line in lines if line.casefold().strip(" .") not in ("", *_NO_ERROR)
    )
    return list(errors)[:max_errors]


def format_as_bullets(errors: list[str]) -> str:
    """Return errors as a bulleted list for prompts."""
    return "\n".join(f"- {error}" for error in errors)
