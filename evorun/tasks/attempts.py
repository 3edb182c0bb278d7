"""What the tasks share of a refinement prompt: the list of the attempts so far, and how each fared."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evorun.runs.candidates import Response
from evorun.tasks.capabilities import Attempt, AttemptOutcome
from evorun.tasks.prompt_files import PromptFiles

_OUTCOMES: dict[AttemptOutcome, str] = {
    "first": "the first attempt",
    "won": "judged better than the best answer before it",
    "lost": "judged worse than the best answer of its time",
    "undecided": "judged neither better nor worse than the best answer of its time",
}


def shown_attempts(
    prompts: PromptFiles, attempts: Sequence[Attempt], shown: Callable[[Response], Mapping[str, Any]]
) -> str:
    """Return earlier attempts as the refinement prompts list them, by the prompt file `attempt`.

    shown: what that file is given of a response, beside the attempt's number, outcome and reason.
    """
    return "\n\n".join(
        prompts.render(
            "attempt",
            **shown(attempt.response),
            number=number,
            outcome=_OUTCOMES[attempt.outcome],
            reason=attempt.reason,
        )
        for number, attempt in enumerate(attempts, 1)
    )
