"""Agentic search as methods see it: a question, a search tool, and an answer of a few words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from evorun.models.base import Message, Request
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Grade, Problem
from evorun.tasks.corrections import read_unless_withdrawn
from evorun.tasks.json_text import replace_lone_surrogates
from evorun.tasks.search_qa.reading import read_call
from evorun.tasks.search_qa.retrieval.base import Passage, Retriever
from evorun.tasks.short_answers import exact_match, f1, is_in_form, normalise, read_answer
from evorun.tasks.simulator import REVIEWS, TextSimulator
from evorun.tasks.split_benchmark import SPLIT_HELP
from evorun.tasks.tags import escape_tags
from evorun.tasks.text_task import TextTask
from evorun.tasks.thinking import without_thinking
from evorun.tasks.tool_calls import CLOSING, OPENING

MAX_TITLE_CHARS = 200
"""Most characters of a passage's title in the prompt (ours)."""


class SearchQa(TextTask):
    """Answers a question in free text that ends in `Answer: ...`, after searching as often as its turns allow."""

    name = "search_qa"
    scores = (ACCURACY, Score("f1", 0, 1), Score("format", 0, 1))
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    wording: Mapping[str, str] = {
        "persona": "a careful researcher",
        "subject": "question",
        "requirement": "The answer has to be one to five words. ",
        "reasoning_label": "Reply",
        "correction": "The accepted answer is",
    }
    draw_help = SPLIT_HELP

    def __init__(
        self,
        retriever: Retriever,
        *,
        max_turns: int = 5,
        max_queries: int = 3,
        passages: int = 3,
        passage_chars: int = 1500,
        prompts: str | None = None,
        shown_reasoning_chars: int | None = None,
    ) -> None:
        """Compile the prompts as `TextTask` does.

        max_queries: per call. passages: per query. passage_chars: most characters of a passage's text in the prompt.
        """
        self._retriever = retriever
        self._max_turns = max_turns
        self._max_queries = max_queries
        self._passages = passages
        self._passage_chars = passage_chars
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.answer_format = self.prompts.render("answer_format")
        self._tool = self.prompts.render("tool", turns=max_turns, queries=max_queries, passages=passages)

    def shared_values(self) -> Mapping[str, Any]:
        return {**super().shared_values(), "tool": self._tool}

    # --- turns ---

    def max_turns(self, problem: Problem) -> int:
        return self._max_turns

    async def answer_tools(self, problem: Problem, said: Message) -> Message | None:
        """Answer a search call with passages, an invalid call with the reason.

        Raises EvorunError where the retriever fails.
        """
        try:
            queries = read_call(without_thinking(said["content"]), self._max_queries)
        except ValueError as reason:
            return Message(role="tool", content=escape_tags(f"error: {reason}"))
        if queries is None:
            return None
        found = await self._retriever.find(queries, self._passages)
        blocks = [self._format_passages(query, passages) for query, passages in zip(queries, found, strict=True)]
        return Message(role="tool", content="\n\n".join(blocks))

    def _format_passages(self, query: str, passages: Sequence[Passage]) -> str:
        """Format the passages of a query, two lines per passage, so that none can look like several."""
        lines = [f"Passages for: {escape_tags(query)}"]
        for number, passage in enumerate(passages, 1):
            title, text = (" ".join(replace_lone_surrogates(part).split()) for part in (passage.title, passage.text))
            cut = text if len(text) <= self._passage_chars else f"{text[: self._passage_chars]} ..."
            lines += [f"[{number}] {escape_tags(title[:MAX_TITLE_CHARS])}", escape_tags(cut)]
        return "\n".join(lines if passages else [*lines, "nothing found; use other words"])

    # --- answers ---

    def read(self, problem: Problem, text: str) -> str:
        """Return what follows the last `Answer:`. Kinds: `no_answer`, `tool_call`, `too_long` and `withdrawn`."""
        return read_unless_withdrawn(lambda part: read_answer(part, self.question(problem)), text, only_sure=True)

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning.strip()}\n\nAnswer: {answer}".strip()

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Compare with one accepted answer; the grader takes the best of all accepted answers."""
        said, expected = response.answer, reference or ""
        measured = (exact_match(said, expected), f1(said, expected)) if said is not None else (False, 0.0)
        form = float(response.answer is not None and is_in_form(response.text))
        detail = "" if said is not None else response.error or ""
        return Grade(correct=measured[0], scores={"f1": measured[1], "format": form}, detail=detail)

    def signature(self, problem: Problem, response: Response) -> str:
        """Return the answer as exact match compares it, so that votes count equal answers together."""
        return normalise(response.answer or "")


class SearchSimulator(TextSimulator):
    """Searches once or twice, always the same for a question, and answers by its skill, whatever was found."""

    filler: ClassVar[Filler] = Filler("The passages name what was asked for and bear out the date and the place.")
    malformed: ClassVar[Sequence[str]] = ("The passages do not say.", "Answer:", f"{OPENING} one more search", "")

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        role = request.hints["role"]
        if "problem" in request.hints and role not in REVIEWS:
            problem = self._rows[request.hints["problem"]].problem
            searched = sum(message["role"] == "tool" for message in request.messages)
            if searched < 1 + len(problem.id) % 2:
                if rng.random() < self._skill.malformed:
                    return f"{OPENING} {self._task.question(problem)}"
                return search_call(self._task.question(problem), searched)
        return super().respond(request, rng)


def search_call(question: str, searched: int) -> str:
    """Return a turn that searches for the question, or in later turns for parts of it."""
    words = question.split()
    queries = [question[:200]] if not searched else [" ".join(words[:4]), " ".join(words[-4:])]
    call = msgspec.json.encode({"name": "search", "arguments": {"query_list": queries}}).decode()
    return f"I look it up.\n{OPENING}{call}{CLOSING}"
