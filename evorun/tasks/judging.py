"""Replies of judges and evaluators: verdicts on two responses, errors and scores of one. Their schemas and reading.

The verdicts are Duel-Evolve's (B.1.4, B.2.4), errors and scores are those of Lyria's LLM-based detector and evaluator
(sections 4.1.1 and 4.1.4).
"""

import math
import re
from typing import Any

import msgspec

from evorun.runs.candidates import Verdict
from evorun.tasks.capabilities import Judgment
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import read_object, well_formed
from evorun.tasks.thinking import without_thinking


def _schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


# --- verdicts ---

VERDICT_CHARS = 200
"""Longest reasoning that the schema lets a judge write (ours: the prompt asks for one sentence)."""

REASONED_VERDICT_CHARS = 400
"""The same where the reasoning comes first and weighs several points (ours)."""

_SOLUTION = {"type": "string", "enum": ["A", "B", "T"]}

VERDICT_SCHEMA = _schema(solution=_SOLUTION, reasoning={"type": "string", "maxLength": VERDICT_CHARS})
"""Verdict first, then one sentence of reasoning (Duel-Evolve, B.1.4)."""
REASONED_VERDICT_SCHEMA = _schema(reasoning={"type": "string", "maxLength": REASONED_VERDICT_CHARS}, solution=_SOLUTION)
"""One sentence of reasoning, then the verdict (B.2.4)."""

_VERDICTS: dict[str, Verdict] = {"a": "A", "b": "B", "t": "T", "tie": "T"}
_DECORATION = re.compile(r"^(?:candidate|solution|response)\s+|[\s\"'`*().\[\]:]+")
_STATED = re.compile(r'"solution"\s*:\s*"([^"]{0,40})"')


def parse_judgment(text: str) -> Judgment:
    """Return a judge's verdict and reason; `invalid` when it does not say A, B or T plainly. Never raises.

    Nothing is guessed from prose: an unclear verdict must count as non-decisive, not as a preference.
    """
    text = without_thinking(text)
    # A bare letter is plain enough; anything longer is prose and `_verdict` refuses it.
    reply = read_object(text)
    if reply is None:
        return Judgment(verdict=_verdict(text))
    reason = reply.get("reasoning")
    # A reply that is started over may state another verdict; which one is meant cannot be told.
    stated = {_verdict(value) for value in _STATED.findall(text)} - {"invalid"}
    return Judgment(
        verdict="invalid" if len(stated) > 1 else _verdict(reply.get("solution")),
        reason=well_formed(reason) if isinstance(reason, str) else "",
    )


def _verdict(value: object) -> Verdict:
    if not isinstance(value, str) or len(value) > 40:
        return "invalid"
    return _VERDICTS.get(_DECORATION.sub("", value.strip().lower()), "invalid")


# --- errors and scores ---

REASONING_CHARS = 1200
"""Longest reasoning that the schemas let an evaluator write (ours)."""
ERROR_CHARS = 300
"""Longest description of one error (ours)."""
# As many as the schema allows; the paper's ablations go up to 9
_MOST_ERRORS = 10
_NO_ERROR = ("none", "no error", "no errors")

# Blanks and what makes numbers bold
_GAP = r"[\s*_]{0,6}"
_HUNDRED = r"100(?:\.0+)?(?!\.?\d)"
# Mentions of the scale that a score lies on. "A score of 100" is none: `of 100` counts behind a number alone
_SCALE = re.compile(
    rf"""
      / {_GAP} {_HUNDRED}  # 85/100
    | \b out {_GAP} of {_GAP} (?:(?:an?|the)\s)? (?:(?:possible|maximum|total)\s)? (?:of\s)? {_GAP} {_HUNDRED}
    | (?: (?<=[\d%]) | (?<=\d\*\*) ) \s{{1,3}} (?:points?\s|marks?\s)? of {_GAP} {_HUNDRED}  # 85 of 100
    | \b (?: scale \s of | max (?:imum)? \s? [:=]? ) {_GAP} {_HUNDRED}
    | (?<![\w.,]) (?:[01](?:\.0+)?|zero) {_GAP} (?:to|and|[-\u2013\u2014,]|\.{{2,3}}) {_GAP} {_HUNDRED}  # 0 to 100
    | (?<![\w.]) {_HUNDRED} {_GAP} -? {_GAP} point\s+(?:scale|system)
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A decimal number, with a point or (one or two places) a comma, maybe with an exponent
_NUMBER = re.compile(
    r"""
    (?<![^\W_]) (?<!\d\.)
    [-\u2212]? (?: (?<!\d,) \d{1,3},\d{1,2} (?!,?\d) | \d{1,30} (?:\.\d{1,30})? (?:e[-+]?\d{1,3})? )
    (?! [^\W_] | \.\d)
    """,
    re.VERBOSE | re.IGNORECASE,
)

_REASONING = {"type": "string", "maxLength": REASONING_CHARS}
_ERROR = {"type": "string", "maxLength": ERROR_CHARS}

ERRORS_SCHEMA = _schema(reasoning=_REASONING, errors={"type": "array", "items": _ERROR, "maxItems": _MOST_ERRORS})
"""Reasoning, then a list of errors."""
FITNESS_SCHEMA = _schema(reasoning=_REASONING, score={"type": "number"})
"""Reasoning, then a score, in [0, 100] as the prompts ask."""


def read_errors(text: str, max_errors: int) -> list[str] | None:
    """Return the errors that a completion names, the first `max_errors` of them, each once and on one line.

    None when it has no list of errors. Never raises.
    """
    reply = read_object(without_thinking(text))
    named = reply.get("errors") if reply is not None else None
    if isinstance(named, str):
        named = [named]
    if not isinstance(named, list):
        return None
    lines = [" ".join(well_formed(error).split()) for error in named if isinstance(error, str)]
    errors = dict.fromkeys(
        excerpt(line, ERROR_CHARS) for line in lines if line.casefold().strip(" .") not in ("", *_NO_ERROR)
    )
    return list(errors)[:max_errors]


def read_fitness(text: str) -> float | None:
    """Return the score that a completion gives, brought into [0, 100]; None without any. Never raises.

    A number under `score` in its JSON object counts, else the last one in the text; see `last_score`.
    """
    reply = read_object(without_thinking(text))
    score = reply.get("score") if reply is not None else None
    # `bool` is an int in Python, and JSON's 1e999 is infinite: neither is a score.
    if isinstance(score, bool) or not isinstance(score, int | float) or not -math.inf < score < math.inf:
        score = last_score(text)
    return None if score is None else float(min(100, max(0, score)))


def last_score(text: str) -> float | None:
    """Return the last decimal number in a text that does not name the scale (`/100`, `0 to 100`); None without any.

    Takes time linear in the text's length.
    """
    # Mentions of the scale are taken out first: in "70 out of 100" the last number is not the score.
    found = _NUMBER.findall(_SCALE.sub(" ", without_thinking(text)))
    number = float(found[-1].replace(",", ".").replace("\u2212", "-")) if found else math.nan
    return number if math.isfinite(number) else None


def bulleted(errors: list[str]) -> str:
    """Return errors as prompts show them: one a line."""
    return "\n".join(f"- {error}" for error in errors)


# --- in simulated runs ---

EVALUATIONS = ("fitness", "errors")
"""Roles that `evaluation` plays."""
_SIMULATED_ERRORS = ("The last step does not follow.", "The result was not checked.", "A case is left out.")
# Simulated scores of what is taken for right are higher, others lower (ours)
_SOUND = 60


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
