"""Common parts of the puzzles: prompts around a fenced answer, the symbolic system, errors, simulated replies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import load_task
from evorun.errors import ConfigError
from evorun.models.base import Request
from evorun.runs.candidates import Response
from evorun.simulation.skill import Skill
from evorun.tasks.base import LoadedTask, Prompt
from evorun.tasks.capabilities import Attempt, Diagnosis, HasSymbolicOperators, Individual, ScoredResponse
from evorun.tasks.puzzles.puzzle import Puzzle

NO_TOOLS: Any = None
FEW = {"instances": 3, "validation_instances": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "sudoku": {"box": 2, "empty_cells": 8, **FEW},
    "graph_coloring": {"colorable_only": True, **FEW},
    "tsp": {"cities": 6, **FEW},
}
WRONG = {
    "sudoku": "\n".join(["1 1 1 1"] * 4),
    "graph_coloring": ",".join(["0"] * 9),
    "tsp": "0,1,2,0",
}


class Case:
    """A loaded puzzle with a right, a wrong and an unreadable response to one of its problems."""

    def __init__(self, name: str) -> None:
        self.loaded: LoadedTask = load_task(name, **SETTINGS[name])
        assert isinstance(self.loaded.task, Puzzle)
        self.task: Any = self.loaded.task
        self.shot = self.loaded.validation[0]
        self.problem = self.shot.problem
        self.right: Response = self.task.response(self.shot.answer)
        self.wrong: Response = self.task.response(WRONG[name])
        self.unread: Response = self.task.parse(self.problem, "I give up. " * 200)

    def prompts(self, response: Response) -> dict[str, Prompt]:
        task, problem = self.task, self.problem
        one = Individual(response=response, fitness=81.25, errors=Diagnosis(text="cell 7 is odd"))
        return {
            "generate": task.generation_prompt(problem),
            "few_shot": task.few_shot_prompt(problem, [self.loaded.validation[1]]),
            "instruct": task.instructed_prompt(problem, task.seed_instruction()),
            "evolve": task.evolution_prompt(problem, [ScoredResponse(response=response, score=0.25)]),
            "refine": task.refinement_prompt(problem, response, [Attempt(response=response, outcome="lost")]),
            "crossover": task.crossover_prompt(problem, one, one),
            "mutate": task.mutation_prompt(problem, one),
            "judge": task.judge_prompt(problem, response, response),
            "errors": task.errors_prompt(problem, response),
            "fitness": task.fitness_prompt(problem, response),
        }

    def asked(self, prompt: Prompt, seed: int = 0, **skill: float) -> str:
        faultless = Skill(**{"skill": 1, "judge_skill": 1, "malformed": 0, "position_bias": 0, **skill})  # type: ignore[arg-type]
        request = Request(messages=prompt.messages, hints=prompt.hints)
        return self.loaded.simulator.with_skill(faultless).respond(request, np.random.default_rng(seed))


@pytest.fixture(scope="module", params=SETTINGS)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_every_prompt_poses_the_puzzle_alone_and_only_a_judge_is_held_to_a_schema(case: Case) -> None:
    rules, puzzle = case.task.question(case.problem).split("\n\n", 1)
    form = case.task.cached_problem_values(case.problem)["answer_format"]
    assert isinstance(case.task, HasSymbolicOperators)
    for role, prompt in case.prompts(case.wrong).items():
        text = prompt.messages[-1]["content"]
        assert rules in text, role
        assert puzzle in text, role
        assert (form in text) == (role not in ("judge", "errors", "fitness")), role
        assert (prompt.json_schema is not None) == (role == "judge")
        assert [message["role"] for message in prompt.messages] == ["system"] * (role == "instruct") + ["user"]
        assert (prompt.hints["role"], prompt.hints["problem"]) == (role, case.problem.id)
        if role not in ("generate", "few_shot", "instruct"):
            assert f"```\n{case.wrong.answer}\n```" in text, role


def test_what_is_written_is_read_again_and_a_demonstration_shows_it(case: Case) -> None:
    for reasoning in ("", "It follows.\nSo it is."):
        text = case.task.write(case.problem, case.shot.answer, reasoning)
        response = case.task.parse(case.problem, text)
        assert (response.answer, response.reasoning, response.error) == (case.shot.answer, reasoning, None)
        shot = case.task.demonstration(case.shot, response)
        assert text in case.task.few_shot_prompt(case.problem, [shot]).messages[0]["content"]


async def test_a_response_that_cannot_be_read_is_shown_as_its_text_and_worth_nothing(case: Case) -> None:
    assert (case.unread.answer, case.unread.error) == (None, "no_block: no fenced block with an answer")
    for role, prompt in case.prompts(case.unread).items():
        shown = role not in ("generate", "few_shot", "instruct")
        assert (f"```\n{case.unread.text}\n```" in prompt.messages[-1]["content"]) == shown, role
    grade = await case.loaded.grader.grade(case.problem, case.unread, NO_TOOLS)
    assert (grade.correct, grade.detail) == (False, case.unread.error)
    verified = await case.task.verify(case.problem, case.unread, 3, NO_TOOLS)
    assert (verified.fitness, verified.errors.findings) == (0, ())
    assert case.unread.error in verified.errors.text
    assert not (await case.task.verify(case.problem, case.unread, 0, NO_TOOLS)).errors.text


async def test_a_grade_has_the_declared_scores_and_the_gold_answer_the_best(case: Case) -> None:
    declared = {score.name: score for score in case.task.scores[1:]}
    for response, right in ((case.right, True), (case.wrong, False)):
        grade = await case.loaded.grader.grade(case.problem, response, NO_TOOLS)
        assert grade.correct is right
        assert grade.scores.keys() == declared.keys()
        for name, value in grade.scores.items():
            assert name in grade.detail
            score = declared[name]
            if right:
                # To the letter, EDM rewards a route that leaves cities out: its least value is no right answer's.
                best = score.low if name != "excess_distance_multiplier_paper" else 0
                assert value == (score.high if score.higher_is_better else best)


def test_a_reflection_names_the_right_answer_only_where_it_is_given(case: Case) -> None:
    def record(response: Response, *, told: bool) -> str:
        grade = case.task.score(case.problem, response, case.shot.answer) if told else None
        text: str = case.task.reflection_record(case.problem, response, case.shot if told else None, grade)
        return text

    assert case.shot.answer in record(case.wrong, told=True)
    assert case.shot.answer not in record(case.wrong, told=False)
    assert "It is right." in record(case.right, told=True)
    assert "It is right." not in record(case.right, told=False)
    assert case.unread.error in record(case.unread, told=False)


def test_all_of_a_reasoning_is_shown(case: Case) -> None:
    long = Response(text="", answer=WRONG["tsp"], reasoning="a" * 5000 + "b")
    for role in ("evolve", "refine", "judge"):
        assert long.reasoning in case.prompts(long)[role].messages[0]["content"]


def test_a_detectors_reply_is_the_last_block_up_to_the_limit(case: Case) -> None:
    found = case.task.findings(case.problem, case.wrong.answer)
    reply = f"```\nnone\n```\nNo:\n```\n{case.task.describe(case.problem, found)}\n```"
    for limit in (0, 1, 1000):
        read = case.task.parse_errors(case.problem, reply, limit)
        assert read == case.task.verified(case.problem, case.wrong, limit).errors
        assert len(read.findings) == min(limit, len(found))
    assert case.task.parse_errors(case.problem, "```\nNone\n```", 3) == Diagnosis()
    assert case.task.parse_errors(case.problem, "```\nunreadable\n```", 3).text == "The answer cannot be read."
    assert case.task.parse_errors(case.problem, "```\nunreadable\n```", 0).text == ""
    assert case.task.parse_errors(case.problem, "```\nno idea\n```", 3) is None
    assert case.task.parse_errors(case.problem, "no errors", 3) is None


def test_the_fitness_is_the_score_in_an_object_or_the_last_number(case: Case) -> None:
    replies = ('{"score": 80, "reasoning": "Row 2 repeats 5."}', "So 101.", "-4", "none")
    assert [case.task.parse_fitness(text) for text in replies] == [80, 100, 0, None]


def test_a_faultless_model_says_what_the_symbolic_system_says(case: Case) -> None:
    for response in (case.right, case.wrong, case.unread):
        verified = case.task.verified(case.problem, response, 1000)
        prompts = case.prompts(response)
        score = case.task.parse_fitness(case.asked(prompts["fitness"]))
        assert score == pytest.approx(verified.fitness, abs=0.051)
        errors = case.task.parse_errors(case.problem, case.asked(prompts["errors"]), 1000)
        assert errors.findings == verified.errors.findings
        assert bool(errors.text) == (response is not case.right)
    for pair, verdict in (((case.right, case.wrong), "A"), ((case.unread, case.right), "B")):
        judged = case.asked(case.task.judge_prompt(case.problem, *pair), tie_rate=0)
        assert case.task.parse_judgment(judged).verdict == verdict
    for role, prompt in case.prompts(case.right).items():
        if role not in ("judge", "errors", "fitness"):
            answer = case.task.parse(case.problem, case.asked(prompt))
            assert case.task.measure(case.problem, answer.answer).correct, role
    mended = case.asked(case.task.errors_prompt(case.problem, case.wrong), judge_skill=0)
    assert mended.endswith("```\nnone\n```")
    response = case.wrong
    for seed in range(60):  # each mends a share of the decisions that are still wrong
        again = case.asked(case.prompts(response)["mutate"], seed, improvement=1)
        response = case.task.parse(case.problem, again)
    assert case.task.measure(case.problem, response.answer).correct


def test_a_users_files_replace_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "generation.md").write_text("Rules: {{ rules }}\nPuzzle: {{ puzzle }}\nForm: {{ answer_format }}")
    (tmp_path / "instructed.md").write_text("{{ question }}")
    (tmp_path / "system.md").write_text("You play fair.")
    task: Any = load_task("sudoku", prompts=str(tmp_path), **SETTINGS["sudoku"]).task
    case = Case("sudoku")
    plain, posed = case.task.cached_problem_values(case.problem), task.generation_prompt(case.problem).messages
    assert posed[0]["content"] == "You play fair."
    assert posed[1]["content"] == f"Rules: {plain['rules']}\nPuzzle: {plain['puzzle']}\nForm: {plain['answer_format']}"
    assert task.instructed_prompt(case.problem, "").messages[1]["content"] == case.task.question(case.problem)


@pytest.mark.parametrize(("file", "text"), [("rules", "{{ puzzle }}"), ("instruction", "{{ size }}"), ("parent", "{%")])
def test_a_users_file_that_cannot_be_used_is_named_before_any_model_is_asked(
    file: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / f"{file}.md").write_text(text)
    with pytest.raises(ConfigError, match=rf"{file}\.md"):
        load_task("sudoku", prompts=str(tmp_path), **SETTINGS["sudoku"])
