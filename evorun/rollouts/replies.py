"""Replies read as responses, and counts of the texts that could not be used."""

from dataclasses import astuple, dataclass

from evorun.models.base import Reply
from evorun.runs.candidates import REFUSED, Response
from evorun.runs.results import RARE_COUNTS
from evorun.tasks.base import Problem, Task


def read_reply(task: Task, problem: Problem, reply: Reply) -> Response:
    """Return the reply as a response; a request that the engine refused has no text, and says so in its error.

    A text that the engine ended for its low confidence has no answer, even where one could be read in the part.
    """
    if reply.error is not None:
        return Response(text="", answer=None, error=f"{REFUSED}{reply.error}")
    completion = reply.completions[0]
    if completion.finish_reason == "low_confidence":
        error = f"ended after {completion.tokens} tokens, when the confidence fell below the threshold"
        return Response(text=completion.text, answer=None, error=error)
    return task.parse(problem, completion.text)


@dataclass
class TextCounts:
    """Counts of the texts that a step asked for."""

    texts: int = 0
    """Replies read, those refused left out."""
    unparsable_texts: int = 0
    """Texts that did not parse, those with a later attempt included."""
    rejected_requests: int = 0
    """Requests that the engine refused; asking again would not help."""
    truncated_texts: int = 0
    """Texts that ran into `max_tokens`, whether they parsed or not."""
    overlong_texts: int = 0
    """Texts that the engine let go on beyond `max_tokens`, whether they parsed or not."""
    unsure_texts: int = 0
    """Texts that the engine ended for their low confidence; they are not among those that did not parse."""
    shortened_texts: int = 0
    """Texts of which later prompts show only a part."""

    def __add__(self, other: "TextCounts") -> "TextCounts":
        return TextCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def add(self, task: Task, reply: Reply, response: Response) -> None:
        """Count one reply with the response that it was read as."""
        # Counted by itself: a refusal says something of the request or the server, not of the model's format.
        if reply.error is not None:
            self.rejected_requests += 1
            return
        self.texts += 1
        self.truncated_texts += reply.completions[0].finish_reason == "length"
        self.overlong_texts += reply.completions[0].finish_reason == "overlong"
        unsure = reply.completions[0].finish_reason == "low_confidence"
        self.unsure_texts += unsure
        self.unparsable_texts += response.error is not None and not unsure
        self.shortened_texts += task.shows_excerpt(response)

    def diagnostics(self) -> dict[str, float]:
        """Return the counts that a step reports."""
        return {
            "texts": self.texts,
            "unparsable_texts": self.unparsable_texts,
            "rejected_requests": self.rejected_requests,
            "truncated_texts": self.truncated_texts,
            **{name: count for name in RARE_COUNTS if (count := getattr(self, name))},
        }
