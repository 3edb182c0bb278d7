"""The check of a task's prompts: each renders alike twice, and its parser reads the simulator's reply."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from evorun.simulation.skill import Skill
from evorun.tasks.base import Demonstration, LoadedTask, Prompt
from evorun.tasks.capabilities import (
    Attempt,
    Explanation,
    Paradigm,
    ScoredResponse,
    SupportsAggregation,
    SupportsDemonstrations,
    SupportsDistillation,
    SupportsErrorDetection,
    SupportsEvolution,
    SupportsFitnessScores,
    SupportsJudging,
    SupportsModelOperators,
    SupportsPairRatings,
    SupportsParadigms,
    SupportsRefinement,
    SupportsRubrics,
    SupportsScratchpad,
    SupportsSystemPrompts,
)
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import read_rubric
from evorun.testing.expectations import expect
from evorun.testing.task_cases import Case, make_individual, simulate_reply

_TWO_ITEMS = read_rubric("<rubric><item>Steps\n- 5: sound</item><item>End\n- 2.5: right</item></rubric>")


def check_prompts(loaded: LoadedTask, case: Case) -> None:
    """Render every prompt of the task twice, and read the simulator's reply to each."""
    task: Any = loaded.task
    asked, again = (list(_prompts(task, case, loaded.validation)) for _ in range(2))
    for (name, prompt, read), (_, same, _) in zip(asked, again, strict=True):
        expect(prompt == same, f"{name}: expected the same prompt when rendered twice")
        expect(prompt.messages, f"{name}: expected messages, found none")
        for message in prompt.messages:
            expect(isinstance(message["content"], str), f"{name}: expected texts, found {message['content']!r}")
        json.dumps(prompt.json_schema)
        text = simulate_reply(loaded, case.problem, prompt, Skill(skill=1, malformed=0))
        expect(read(text), f"{name}: expected a reply of its simulator that can be read, found {text[:300]!r}")
    _check_format_is_told("generation_prompt", task.generation_prompt(case.problem))
    if isinstance(task, SupportsSystemPrompts):
        seeded = task.instructed_prompt(case.problem, task.seed_instruction())
        _check_format_is_told("instructed_prompt under the seed instruction", seeded)
        expect(task.seed_instruction().strip(), "seed_instruction: expected a system prompt, found a blank one")
        for response in case.responses:
            for example in (None, *loaded.validation[:1]):
                expect(task.reflection_record(case.problem, response, example).strip(), "reflection_record: is blank")


def _check_format_is_told(name: str, prompt: Prompt) -> None:
    # Completions for training are drawn without the schema, and some servers support none: the text must suffice.
    told = "\n".join(message["content"] for message in prompt.messages)
    for key in (prompt.json_schema or {}).get("required", ()):
        expect(key in told, f"{name}: expected its text to name the key '{key}', which its JSON schema requires")


def _prompts(
    task: Any, case: Case, validation: Sequence[Demonstration]
) -> Iterator[tuple[str, Prompt, Callable[[str], object]]]:
    """Yield the name of each prompt, the prompt, and a function that is true for readable replies."""
    problem, responses = case.problem, case.responses
    individuals = [make_individual(response) for response in responses]

    def answered(text: str) -> bool:
        return task.parse(problem, text).answer is not None

    yield "generation_prompt", task.generation_prompt(problem), answered
    if isinstance(task, SupportsEvolution):
        parents = [
            ScoredResponse(response=response, score=0.5, win=Explanation(reason="It is right."))
            for response in responses
        ]
        yield "evolution_prompt", task.evolution_prompt(problem, parents), answered
    if isinstance(task, SupportsAggregation):
        for shown in (responses[:1], responses):
            yield "aggregation_prompt", task.aggregation_prompt(problem, shown), answered
    if isinstance(task, SupportsDistillation):
        yield "distilled_prompt", task.distilled_prompt(problem, "The first draft is wrong.", responses), answered
    if isinstance(task, SupportsParadigms):
        paradigm, program = Paradigm(title="Rows", plan="Use rows."), case.right
        patch = task.patch_prompt(problem, program, responses, "full", paradigm=paradigm)
        yield "patch_prompt", patch, answered
        proposed = task.paradigms_prompt(problem, program, [(paradigm, 0.0)], 3)
        yield "paradigms_prompt", proposed, task.parse_paradigms
    if isinstance(task, SupportsScratchpad):
        program, notes = case.right, "Rows are good."
        patch = task.patch_prompt(problem, program, responses, "full", recommendation="Use rows.")
        yield "patch_prompt", patch, answered
        yield "summary_prompt", task.summary_prompt(problem, program), str.strip
        yield "insights_prompt", task.insights_prompt(problem, [(program, "Rows.")], notes, program), str.strip
        recommending = task.recommendations_prompt(problem, notes, ["Use rows."], program, 5)
        yield "recommendations_prompt", recommending, task.parse_recommendations
    if isinstance(task, SupportsRefinement):
        attempts = [
            Attempt(response=response, outcome="lost", judged=Explanation(reason="It is wrong."))
            for response in responses
        ]
        yield "refinement_prompt", task.refinement_prompt(problem, case.wrong, attempts), answered
    if isinstance(task, SupportsDemonstrations):
        solved = [task.demonstration(example, case.right) for example in validation[:1]]
        yield "few_shot_prompt", task.few_shot_prompt(problem, [*solved, *validation[1:3]]), answered
    if isinstance(task, SupportsSystemPrompts):
        yield "instructed_prompt", task.instructed_prompt(problem, "Take care."), answered
    if isinstance(task, SupportsModelOperators):
        for first, second in pairwise(individuals):
            yield "crossover_prompt", task.crossover_prompt(problem, first, second), answered
        for individual in individuals:
            yield "mutation_prompt", task.mutation_prompt(problem, individual), answered
    if isinstance(task, SupportsJudging):
        readable = task.judge_prompt(problem, case.right, case.wrong)
        yield "judge_prompt", readable, lambda text: task.parse_judgment(text).verdict != "invalid"
    if isinstance(task, SupportsPairRatings):
        rating = task.rating_prompt(problem, case.right, case.wrong)
        yield "rating_prompt", rating, lambda text: task.parse_ratings(text).ratings is not None
    if isinstance(task, SupportsRubrics):
        for rubric in (task.starting_rubric("initial", task.rubric_key(problem)), _TWO_ITEMS):
            scoring = task.scoring_prompt(problem, case.wrong, rubric)
            yield "scoring_prompt", scoring, partial(read_scores, rubric=rubric)  # which raises
        item_prompt = task.scoring_prompt(problem, case.wrong, _TWO_ITEMS, _TWO_ITEMS.items[1], plan="Look at the end.")
        yield "scoring_prompt", item_prompt, partial(read_scores, rubric=_TWO_ITEMS, item=_TWO_ITEMS.items[1])
        yield "planning_prompt", task.planning_prompt(problem, _TWO_ITEMS), str.strip
    if isinstance(task, SupportsFitnessScores):
        yield (
            "fitness_prompt",
            task.fitness_prompt(problem, case.wrong),
            lambda text: task.parse_fitness(text) is not None,
        )
    if isinstance(task, SupportsErrorDetection):
        yield (
            "errors_prompt",
            task.errors_prompt(problem, case.wrong),
            lambda text: task.parse_errors(problem, text, 2) is not None,
        )
