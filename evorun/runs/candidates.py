"""Candidates, duels and steps: the structs that methods yield and that a run's records extend."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

SHARED = "*"
"""Stands for a problem's id where something serves all problems."""
GIVEN = "given"
"""Operator of a prompt that no search made: `fixed_prompts` tests it in the step of its generation."""

CandidateId = str
"""Names a candidate within its problem."""
Kind = Literal["response", "system_prompt", "rubric"]
"""A candidate is a `response` to a problem, or a `system_prompt` or `rubric`, which serve all problems."""
Verdict = Literal["A", "B", "T", "invalid"]
"""A judge's answer: `A`, the response shown as A; `B`, the one shown as B; `T`, a tie; `invalid`, a text that says none
of the three."""
Outcome = Literal["first", "second"]
"""The winner of a duel: `first` or `second`. A duel has none, so that None stands in its place, where the verdict is a
tie or `invalid`, or where two orders do not name the same candidate. `Comparison.verdicts` tells these apart."""
REFUSED = "rejected: "
"""Prefix of a response's error, or an invalid verdict's reason, where the engine refused the request."""


class Feedback(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a problem's public tests for a response: known without ground truth."""

    text: str
    """As prompts show it."""
    score: float
    """Share of the public tests passed, or the quality of what a program built, in [0, 1]."""


class Response(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A completion, parsed. A text that could not be parsed has `answer=None` and says why in `error`."""

    text: str
    """Without thinking between tags that came before it; the journal has the whole completion."""
    answer: str | None
    reasoning: str = ""
    memory: str = ""
    """Notes that the model leaves for those who build on this response (evolving memory, appendix A.1)."""
    error: str | None = None
    feedback: Feedback | None = None
    """None until the public tests have run, or where the task has none."""


class Candidate(Response, frozen=True, kw_only=True):
    """A response or text that evolves, its origin, and the method's own belief in it.

    A response to a problem, or a text that serves all problems (a system prompt, a rubric), which has no answer.
    """

    id: CandidateId
    kind: Kind = "response"
    generation: int
    parents: tuple[CandidateId, ...] = ()
    operator: str
    """`init`, `evolve`, ...: the step of the algorithm that made it."""
    attempts: int = 1
    """Model calls made to get this text, including those whose completions did not parse."""
    call: str | None = None
    """Key, in the run's journal, of the model call that wrote it; None where no model wrote it."""
    fitness: float | None = None
    """In [0, 100], where the method has one."""
    errors: str = ""
    """The error detector's text about it."""
    mean: float | None = None
    """Posterior mean of its utility in logits, or another estimate on the method's own scale; higher is better. None
    where the method could not rate it."""
    sd: float | None = None
    """Its uncertainty, on the same scale."""
    confidence: float | UnsetType = UNSET
    """Confidence of the model in the tokens of its text, in nats: their mean, or the measure that the method names.
    Unset where the method asks for none."""
    features: tuple[float, float] | UnsetType = UNSET
    """Length of a program in characters, and its difference from those seen first, by which a grid places it. Unset
    outside of a grid."""
    survivor: bool = False
    """True while the method still considers it."""
    reflection: str = ""
    """The lessons that it was made from, as its prompt showed them."""
    note: str | UnsetType = UNSET
    """A remark of the method for readers, such as the test by which it was accepted; unset without one. Of a candidate
    that serves all problems, the first record's note stays."""
    blamed: tuple[str, ...] = ()
    """Keys, in the run's journal, of the last calls of the rollouts that were reflected on."""

    @property
    def known_confidence(self) -> float:
        """Its confidence; 0, the least, where its engine gave none."""
        return 0.0 if self.confidence is UNSET else self.confidence

    @classmethod
    def from_response(cls, response: Response, **origin: Any) -> Self:
        """Return a response as a candidate; a candidate gives only its fields of a response.

        origin: the fields that a candidate has beyond a response.
        """
        return cls(**{name: getattr(response, name) for name in Response.__struct_fields__}, **origin)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One duel: two candidates, judged once or in both orders."""

    first: CandidateId
    second: CandidateId
    verdicts: tuple[Verdict, ...]
    """The judge's verdicts: with `first` shown as A, then, when it was asked twice, with `first` shown as B."""
    outcome: Outcome | None
    """The winner; None when the duel was not decisive: a tie, an invalid verdict, or two orders that disagree."""
    reasons: tuple[str, ...]
    """The judge's explanations, one per verdict."""
    votes: tuple[tuple[Verdict, ...], ...] | UnsetType = UNSET
    """For a panel, each judge's vote behind each verdict; the verdict is the majority's."""
    ratings: tuple[float, float] | UnsetType = UNSET
    """Mean ratings of `first` and `second`, from 1 to 10; unset where none was asked for or could be read."""


class Step(msgspec.Struct, kw_only=True):
    """A method's report after each step of its loop."""

    step: int
    best: Candidate | None
    """The candidate that the method would return now; None while it has none that parses."""
    candidates: Sequence[Candidate]
    """All candidates so far, with the beliefs after this step. Only those of the last step are recorded."""
    pool: int | None = None
    """Number of candidates that the method still considers; None: the survivors are counted."""
    comparisons: Sequence[Comparison] = ()
    """The duels of this step."""
    extra: dict[str, float] = {}
    """Diagnostics of this step, by name."""
    samples: Sequence[Candidate] = ()
    """A sample of the model's responses at this step: the mean of their primary scores is recorded."""
    reached_goal: bool = False
    """True where the method ends here since it has what it looks for, such as the best possible fitness."""
