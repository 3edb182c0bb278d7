"""Lyria's fitness evaluator and error detector: a symbolic system, or a model (sections 4.1.1 and 4.1.4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evorun.methods.context import Context
from evorun.methods.lyria.breeding import Child
from evorun.models.base import Sampling
from evorun.runs.candidates import Response
from evorun.tasks.base import Prompt
from evorun.tasks.capabilities import Diagnosis, Verification

NO_ERRORS = Diagnosis()


@dataclass
class Evaluator:
    """Evaluates responses of one problem, each different answer once: a repeated answer keeps its evaluation."""

    oracle: bool
    """Fitness comes from the task's symbolic system."""
    verifier: bool
    """Errors come from there."""
    max_errors: int
    sampling: Sampling
    """Of the model's scores and errors."""
    known: dict[str, Verification] = field(default_factory=dict)
    unreadable_scores: int = 0
    unreadable_errors: int = 0

    async def evaluate(self, ctx: Context, children: Sequence[Child], *, step: int, first_call: int) -> None:
        """Add the evaluations of these to `known`, by key; model calls take indices from `first_call` on.

        When the budget ends, what could not be evaluated has fitness 0 and no errors.
        """
        # By key: two offspring with one answer in the same phase are evaluated once.
        new = {child.key: child.response for child in children if child.key not in self.known}
        if not new:
            return
        responses = list(new.values())
        # One verification gives both, so a symbolic system runs once where it gives either.
        verified = await ctx.verify(responses, self.max_errors) if self.oracle or self.verifier else None
        fitness = [v.fitness for v in verified] if self.oracle and verified else None
        errors = [v.errors for v in verified] if self.verifier and verified else None
        if fitness is None:
            fitness = await self._scores(ctx, responses, step, first_call)
        if errors is None:
            errors = await self._errors(ctx, responses, step, first_call)
        for key, score, diagnosis in zip(new, fitness, errors, strict=True):
            self.known[key] = Verification(fitness=score, errors=diagnosis)

    def diagnostics(self) -> dict[str, float]:
        """Return the counts of model evaluations so far that a step reports."""
        if self.oracle and self.verifier:
            return {}
        return {"unreadable_scores": self.unreadable_scores, "unreadable_errors": self.unreadable_errors}

    async def _scores(self, ctx: Context, responses: Sequence[Response], step: int, first: int) -> list[float]:
        """Ask a model for the fitness of each readable response; one that cannot be read has none."""
        asked = [i for i, response in enumerate(responses) if response.answer is not None]
        prompts = [ctx.task.fitness_prompt(ctx.problem, responses[i]) for i in asked]
        scores = [0.0] * len(responses)
        for i, text in await self._ask(ctx, prompts, asked, "fitness", step, first):
            score = ctx.task.parse_fitness(text)
            self.unreadable_scores += score is None
            scores[i] = score or 0.0
        return scores

    async def _errors(self, ctx: Context, responses: Sequence[Response], step: int, first: int) -> list[Diagnosis]:
        """Ask a model for the errors of each response, readable or not."""
        found = [NO_ERRORS] * len(responses)
        if self.max_errors == 0:
            return found
        prompts = [ctx.task.errors_prompt(ctx.problem, response) for response in responses]
        for i, text in await self._ask(ctx, prompts, range(len(responses)), "errors", step, first):
            diagnosis = ctx.task.parse_errors(ctx.problem, text, self.max_errors)
            self.unreadable_errors += diagnosis is None
            found[i] = diagnosis or NO_ERRORS
        return found

    async def _ask(
        self, ctx: Context, prompts: Sequence[Prompt], indices: Sequence[int], role: str, step: int, first: int
    ) -> list[tuple[int, str]]:
        """Return the completions with the index that each belongs to; refused requests have an empty text."""
        calls = [first + i for i in indices]
        replies = await ctx.generate(prompts, role=role, step=step, sampling=self.sampling, indices=calls)
        texts = ["" if reply.error is not None else reply.completions[0].text for reply in replies]
        return list(zip(indices, texts, strict=False))  # the budget may cut the replies short
