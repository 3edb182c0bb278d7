"""Capabilities of tasks as small protocols, and the structs that their prompts receive.

A method names the capabilities that it needs; an impossible pair is refused before any model loads.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np

from evorun.models.base import Message
from evorun.runs.candidates import Response, Verdict
from evorun.tasks.base import Demonstration, Grade, Problem, Prompt, Tools
from evorun.tasks.rubric_items import WeightedItem
from evorun.tasks.rubrics import Rubric, RubricItem

Letter = Literal["A", "B"]
PatchForm = Literal["diff", "full", "cross"]
"""The form of a changed program. diff: blocks that replace lines. full: the whole program. cross: a whole program that
combines the parent with another."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's explanation about a response and its rival, which it calls A and B."""

    reason: str = ""
    letter: Letter = "A"
    """The letter of the response; the rival has the other one."""


class ScoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A parent as the evolution prompt shows it: a response and the method's own estimate of its quality."""

    response: Response
    score: float
    """Higher is better, on any scale that holds for all parents of a prompt."""
    win: Explanation = Explanation()
    """From the last duel that the response won; without a reason if it has won none. `loss`: the last that it lost."""
    loss: Explanation = Explanation()


AttemptOutcome = Literal["first", "won", "lost", "undecided"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier proposal for the refinement prompt, with its outcome against the incumbent at the time."""

    response: Response
    outcome: AttemptOutcome
    """`first`: there was no incumbent yet. `won`: it became the incumbent. `lost`: the incumbent stayed.
    `undecided`: it stayed, too, after a tie or an invalid judgment."""
    judged: Explanation = Explanation()
    """The judge's explanation about it and the incumbent at the time."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The errors that a detector found in a response, up to the requested number (Lyria, section 4.1.1)."""

    text: str = ""
    """Text for prompts; empty without errors."""
    findings: tuple[Any, ...] = ()
    """The same for the task's symbolic operators: JSON values, one per error."""


class Individual(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a population as genetic operators see it (Lyria, section 4.1)."""

    response: Response
    fitness: float
    """In [0, 100]; higher is better."""
    errors: Diagnosis


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A symbolic system's score of a response, and the errors it finds."""

    fitness: float
    """In [0, 100]; 100 exactly when the response is right, or provably the best, as far as the system can tell."""
    errors: Diagnosis


class Paradigm(msgspec.Struct, frozen=True, kw_only=True):
    """A new approach for a search that is stuck (AdaEvolve); each part is on one line."""

    title: str
    plan: str
    """The steps by which a program carries it out."""
    target: str = ""
    """The aspect that gets better by it."""
    pitfalls: str = ""
    """Difficulties in writing it."""


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's completion, parsed."""

    verdict: Verdict
    reason: str = ""
    votes: tuple[Verdict, ...] = ()
    """The verdict of each judge of a panel; empty for a single judge."""


class PairRating(msgspec.Struct, frozen=True, kw_only=True):
    """A completion that rates two responses, parsed."""

    ratings: tuple[float, float] | None
    """Of the responses shown as A and as B, from 1 to 10; None where the text does not give both."""
    reason: str = ""


@runtime_checkable
class SupportsRubrics(Protocol):
    """A response can be scored by a model under a rubric of the method's choice (MPO, section 2.3)."""

    def rubric_keys(self) -> tuple[str, ...]:
        """Return the keys of the task's rubrics: a single one for all problems, or one per cluster."""
        ...

    def rubric_key(self, problem: Problem) -> str:
        """Return the key of the rubric that scores a problem's responses."""
        ...

    def task_description(self) -> str:
        """Describe the task of a responder, for models that score responses or refine the rubric."""
        ...

    def starting_rubric(self, name: str, rubric_key: str) -> Rubric:
        """Return the task's rubric of that name (`initial`, `expert`), or a user's file, for a rubric key.

        Raises ConfigError naming the known rubrics, or the unusable file.
        """
        ...

    def scoring_prompt(
        self,
        problem: Problem,
        response: Response,
        rubric: Rubric,
        item: RubricItem | None = None,
        plan: str | None = None,
        *,
        as_json: bool = False,
        reasons: str | None = None,
    ) -> Prompt:
        """Ask for a rationale and then the points, for `read_scores`; with an item, only for its points.

        as_json: as an object of `scores_schema`. reasons: for reasons and points in two turns, the reasons from the
        first turn, or "" to ask for them; the points must match `digits_schema`.
        """
        ...

    def planning_prompt(self, problem: Problem, rubric: Rubric, reference: str | None = None) -> Prompt:
        """Ask for a plan for scoring responses, before any is seen (plan-then-execute, appendix K.3).

        reference: a right solution, which only methods of the regime `labels` may show.
        """
        ...


@runtime_checkable
class HasRubricItems(Protocol):
    """A problem may come with criteria of its own (rubrics as rewards)."""

    def rubric_items(self, problem: Problem) -> Sequence[WeightedItem]:
        """Return the problem's criteria; empty where it has none."""
        ...


@runtime_checkable
class SupportsGeneration(Protocol):
    """The task can be answered from scratch."""

    def generation_prompt(self, problem: Problem) -> Prompt:
        """Ask for an answer, given the problem alone."""
        ...


@runtime_checkable
class HasStartingResponse(Protocol):
    """A problem comes with a response that a search begins from, such as a seed program."""

    def starting_response(self, problem: Problem) -> Response:
        """Return the response, which has an answer."""
        ...


@runtime_checkable
class SupportsPatches(Protocol):
    """A program can be changed in parts or as a whole, with other programs in view."""

    def patch_prompt(
        self,
        problem: Problem,
        parent: Response,
        others: Sequence[Response],
        form: PatchForm,
        *,
        paradigm: Paradigm | None = None,
        recommendation: str = "",
    ) -> Prompt:
        """Ask for a program that is better than the parent; with `cross`, `others` holds the partner alone.

        paradigm: an approach to take. recommendation: what to try. Only tasks that have `SupportsParadigms` and
        `SupportsScratchpad` need these parameters.
        """
        ...

    def read_patch(self, problem: Problem, parent: Response, response: Response, form: PatchForm) -> Response:
        """Return the changed program, given the reply as `parse` read it; with the reason in `error` if there is none.

        A whole program is accepted where changes were asked for. Never raises.
        """
        ...


@runtime_checkable
class SupportsParadigms(SupportsPatches, Protocol):
    """A model can be asked for new approaches where changes to programs no longer help (AdaEvolve)."""

    def paradigms_prompt(
        self, problem: Problem, best: Response, tried: Sequence[tuple[Paradigm, float]], count: int
    ) -> Prompt:
        """Ask for `count` approaches that differ from the best program's, and from those tried before.

        tried: with the gain in the best fitness since each was proposed, in [0, 100].
        """
        ...

    def parse_paradigms(self, text: str) -> Sequence[Paradigm]:
        """Parse the completion; empty where it proposes none. Never raises."""
        ...


@runtime_checkable
class SupportsScratchpad(SupportsPatches, Protocol):
    """A model can take notes on programs and recommend what to try next (Shinka)."""

    def summary_prompt(self, problem: Problem, program: Response) -> Prompt:
        """Ask for a summary of a program that has been run."""
        ...

    def insights_prompt(
        self, problem: Problem, summaries: Sequence[tuple[Response, str]], insights: str, best: Response
    ) -> Prompt:
        """Ask for what summaries of programs show, beside the best program.

        insights: those so far, which the new ones replace; empty for the first ones.
        """
        ...

    def recommendations_prompt(
        self, problem: Problem, insights: str, earlier: Sequence[str], best: Response, count: int
    ) -> Prompt:
        """Ask for `count` recommendations in place of the earlier ones."""
        ...

    def parse_recommendations(self, text: str) -> Sequence[str]:
        """Parse the completion; empty where it recommends nothing. Never raises."""
        ...


@runtime_checkable
class SupportsEvolution(Protocol):
    """The task can be answered with earlier, scored responses in view."""

    def evolution_prompt(self, problem: Problem, parents: Sequence[ScoredResponse]) -> Prompt:
        """Ask for a better answer than the parents'."""
        ...


@runtime_checkable
class SupportsAggregation(Protocol):
    """The task can be answered with unrated responses in view (recursive self-aggregation)."""

    def aggregation_prompt(self, problem: Problem, responses: Sequence[Response]) -> Prompt:
        """Ask for an answer that combines the responses, or improves a single one."""
        ...


@runtime_checkable
class SupportsDistillation(Protocol):
    """Responses can be summed up, and the task answered with the notes alone in view (parallel-distill-refine)."""

    def distillation_prompt(self, problem: Problem, responses: Sequence[Response], max_tokens: int) -> Prompt:
        """Ask for notes on the responses, within a number of tokens."""
        ...

    def distilled_prompt(self, problem: Problem, notes: str, responses: Sequence[Response]) -> Prompt:
        """Ask for an answer in view of notes.

        responses: what the notes sum up, for simulators' hints; the prompt does not show them.
        """
        ...


@runtime_checkable
class SupportsJudging(Protocol):
    """Two responses to a problem can be compared by a model."""

    def judge_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        """Ask which response is better; `first` is shown as A and `second` as B."""
        ...

    def parse_judgment(self, text: str) -> Judgment:
        """Parse the judge's completion; never raises."""
        ...


@runtime_checkable
class SupportsPairRatings(Protocol):
    """Two responses to a problem can be rated side by side by a model (pairwise self-verification)."""

    def rating_prompt(self, problem: Problem, first: Response, second: Response) -> Prompt:
        """Ask for a rating of each response, from 1 to 10; `first` is shown as A and `second` as B."""
        ...

    def parse_ratings(self, text: str) -> PairRating:
        """Parse the completion; never raises."""
        ...


@runtime_checkable
class SupportsDemonstrations(Protocol):
    """The task can be answered with solved problems in view (few-shot prompting)."""

    def few_shot_prompt(self, problem: Problem, demonstrations: Sequence[Demonstration]) -> Prompt:
        """Ask for an answer, given demonstrations, each with its reasoning."""
        ...

    def demonstration(self, demonstration: Demonstration, response: Response) -> Demonstration:
        """Return the demonstration with the answer and the reasoning of a response that was graded correct."""
        ...


@runtime_checkable
class SupportsRefinement(Protocol):
    """A response can be revised in view of the attempts before it (Feedback Descent, appendix D)."""

    def refinement_prompt(self, problem: Problem, incumbent: Response, attempts: Sequence[Attempt]) -> Prompt:
        """Ask for a better answer than the incumbent's; `attempts` are the latest ones, in order."""
        ...


@runtime_checkable
class SupportsSystemPrompts(Protocol):
    """The task can be answered under a system prompt of the method's choice (prompt optimization)."""

    def seed_instruction(self) -> str:
        """Return the initial system prompt (B.1.6, B.2.6)."""
        ...

    def instructed_prompt(self, problem: Problem, instruction: str) -> Prompt:
        """Ask for an answer under this system prompt."""
        ...

    def reflection_record(
        self, problem: Problem, response: Response, demonstration: Demonstration | None, grade: Grade | None = None
    ) -> str:
        """Describe what was right or wrong about a response, for the model that revises the instruction.

        With the demonstration and the run's grade (regime `labels`) the text may name the right answer and the verdict;
        without them, only the response's own feedback.
        """
        ...


@runtime_checkable
class HasPublicTests(Protocol):
    """A response can be tested without ground truth (public tests)."""

    async def observe(self, problem: Problem, response: Response, tools: Tools) -> Response:
        """Return the response with its feedback."""
        ...


@runtime_checkable
class HasTools(Protocol):
    """A response takes several turns of the model, with answers of tools in between."""

    def max_turns(self, problem: Problem) -> int:
        """Return the maximum number of the model's turns; the last one is the response."""
        ...

    async def answer_tools(self, problem: Problem, said: Message) -> Message | None:
        """Return the tools' answer (role `tool`) to an assistant message; None if it uses no tool and is the response.

        A tool's failure is an answer that says so, and so is an exception, except EvorunError (infrastructure).
        """
        ...


@runtime_checkable
class HasEpisodes(HasTools, Protocol):
    """Tools whose answers, and whose grade, depend on all turns of the model: the response consists of all of them."""

    async def answer_episode(
        self, problem: Problem, turns: Sequence[str], tools: Tools | None = None
    ) -> Message | None:
        """Return the tools' answer to the last of these turns, as `HasTools.answer_tools` does for one.

        tools: the run's, to run programs in the sandbox; None outside of a run.
        """
        ...

    def join_turns(self, turns: Sequence[str]) -> str:
        """Return the turns as one text, which `parse` reads as the response."""
        ...


@runtime_checkable
class SupportsModelOperators(Protocol):
    """A model can merge two responses and improve a single one (Lyria, sections 4.1.6 and 4.1.7)."""

    def crossover_prompt(self, problem: Problem, first: Individual, second: Individual) -> Prompt:
        """Ask for a response that combines the strengths of two, each shown with its fitness and errors."""
        ...

    def mutation_prompt(self, problem: Problem, individual: Individual) -> Prompt:
        """Ask for a response that corrects another, which is shown with its fitness and errors."""
        ...


@runtime_checkable
class HasSymbolicOperators(Protocol):
    """The task has symbolic operators: crossover and mutation without a model (Lyria, sections 4.1.6 and 4.1.7)."""

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        """Return a child of two individuals; a parent's own response where nothing can be combined. Never raises."""
        ...

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        """Return a changed response; the individual's own where nothing can be changed. Never raises."""
        ...


@runtime_checkable
class HasVerifier(Protocol):
    """A symbolic system scores responses and names their errors during the search: Lyria's oracle (section 4.1.4)."""

    async def verify(self, problem: Problem, response: Response, max_errors: int, tools: Tools) -> Verification:
        """Score a response (0 if unparsed), and name at most `max_errors` of its errors."""
        ...


@runtime_checkable
class SupportsErrorDetection(Protocol):
    """A model can be asked for a response's errors (Lyria's LLM-based error detector, section 4.1.1)."""

    def errors_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask for all errors of a response."""
        ...

    def parse_errors(self, problem: Problem, text: str, max_errors: int) -> Diagnosis | None:
        """Parse the detector's completion; None when it cannot be read. Never raises."""
        ...


@runtime_checkable
class SupportsFitnessScores(Protocol):
    """A model can be asked how good a response is (Lyria's LLM-based fitness evaluator, section 4.1.4)."""

    def fitness_prompt(self, problem: Problem, response: Response) -> Prompt:
        """Ask for a response's fitness, in [0, 100]."""
        ...

    def parse_fitness(self, text: str) -> float | None:
        """Parse the evaluator's completion, into [0, 100]; None when it cannot be read. Never raises."""
        ...


DESCRIPTIONS: Mapping[type, str] = {
    SupportsGeneration: "generation prompts",
    HasStartingResponse: "a response to start from",
    SupportsPatches: "changes to programs",
    SupportsParadigms: "prompts for new approaches",
    SupportsScratchpad: "notes on programs",
    SupportsEvolution: "evolution prompts",
    SupportsAggregation: "aggregation prompts",
    SupportsDistillation: "notes on responses",
    SupportsJudging: "pairwise judging",
    SupportsPairRatings: "pairwise ratings",
    SupportsDemonstrations: "prompts with solved problems",
    SupportsRefinement: "refinement prompts",
    SupportsSystemPrompts: "system prompts",
    HasPublicTests: "public tests",
    HasTools: "tools",
    SupportsModelOperators: "crossover and mutation by a model",
    HasSymbolicOperators: "symbolic operators",
    HasVerifier: "a symbolic verifier",
    SupportsErrorDetection: "error detection by a model",
    SupportsFitnessScores: "fitness scores by a model",
    SupportsRubrics: "scores by a rubric",
    HasRubricItems: "criteria of single problems",
}
"""Names of the capabilities in errors and listings."""


def describe(capabilities: Sequence[type]) -> str:
    """Return the names of capabilities as part of a sentence; a plug-in's protocol is named by its class."""
    *others, last = [DESCRIPTIONS.get(capability, capability.__name__) for capability in capabilities]
    return f"{', '.join(others)} and {last}" if others else last
