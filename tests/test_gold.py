"""The gold judge: grades that are its opinion, what they cost, and that nothing of it reaches a method."""

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

import evorun
from building import NoTools, composed, make_method, make_run_config
from evorun.cli.grading import grade_file
from evorun.cli.status_table import status_table
from evorun.errors import ConfigError
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.models.base import Request
from evorun.models.config import EngineConfig, ModelConfig, ServedModel
from evorun.reports import text
from evorun.rollouts.calls import Role
from evorun.runner.experiment import run_experiment
from evorun.runner.gold import MethodTools
from evorun.runner.registry import method_class
from evorun.runner.settings import RunConfig, check
from evorun.runner.training_runs import grades_own_reward
from evorun.runner.work import Outcome
from evorun.runs.budget import BudgetConfig
from evorun.runs.candidates import Response
from evorun.runs.job_states import JobStatus
from evorun.runs.replay import ReplayConfig
from evorun.runs.scores import ACCURACY, mean_of_samples
from evorun.runs.terminal import Terminal
from evorun.tasks.base import Grade, LoadedTask, Problem, Prompt, TaskConfig
from evorun.tasks.loading import load_rows
from evorun.tasks.opinions import RUBRIC, OpinionGrader
from evorun.testing.runs import COMPLETED, carry_out
from saying_engine import SayingConfig
from text_tasks import Essays, essays


class Letters(Essays):
    name = "letters"
    scores = (RUBRIC,)
    graded_by_opinion = True

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade()


@dataclass
class LettersConfig(TaskConfig):
    task_class = Letters
    name: str = "letters"

    def load(self) -> LoadedTask:
        task = Letters()
        return load_rows(task, essays(*(None,) * 4), grader=OpinionGrader(task, "initial"))


@dataclass
class SpeakerConfig(SayingConfig):
    """Writes letters of four sorts; as a judge, gives a response the number of its words, up to 5."""

    opinions: ClassVar[tuple[str, ...]] = ()
    """The judge's first opinion on each response, and all others."""

    def say(self, request: Request) -> str:
        shown = re.search(r"<response>\n(.*)\n</response>", request.messages[-1]["content"])
        if not shown:
            return "dear reader " * (1 + request.seed % 2)
        if self.opinions:
            return self.opinions[request.sampling.temperature > 0]
        return f"Words. <score>{len(shown[1].split())}</score>"


GOLD = ModelConfig(name="gold", id="gold")


def run(folder: Path, engine: EngineConfig, gold: EngineConfig, **changes: Any) -> Outcome:
    """Draw three letters to each of four topics, within a budget of just that."""
    config = make_run_config(
        make_method("best_of_n", samples=3, rounds=0, retries=0),
        LettersConfig(),
        engine,
        engine,
        budget=BudgetConfig(calls=12),
        others={"gold": ServedModel(GOLD, gold)},
        **changes,
    )
    return run_experiment(config, folder, ["evorun"], Terminal())


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_it_grades_beside_the_budget_and_is_asked_once_for_the_same(tmp_path: Path) -> None:
    engine, gold = SpeakerConfig(), SpeakerConfig()
    assert run(tmp_path, engine, gold) == COMPLETED
    candidates = records(tmp_path, "candidates")
    assert [one["scores"] for one in candidates] == [{"rubric": len(one["text"].split()) / 5} for one in candidates]
    different = {(one["problem"], one["text"]) for one in candidates}
    assert len(gold.asked) == len(different) < len(candidates) == len(engine.asked) == 12
    assert {one.sampling.temperature for one in gold.asked} == {0.0}
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["metrics"]["rubric"]["n"] == 4
    cost, seconds = results["cost"], sum(0.1 * (1 + one.seed % 3) for one in gold.asked)
    assert list(cost) == ["generate", "total", "gold"]
    assert cost["total"] == cost["generate"]
    spent = {"calls": len(gold.asked), "prompt_tokens": 10 * len(gold.asked), "completion_tokens": 5 * len(gold.asked)}
    assert cost["gold"] == {**spent, "seconds": pytest.approx(seconds, abs=1e-3)}
    assert results["counts"]["stopped_by_budget"] == 0
    # Its calls are among those of the run's frame, without a place in a step.
    asked = evorun.load(tmp_path).calls().query("role == 'gold'")
    assert len(asked) == len(gold.asked)
    assert asked["index"].isna().all()
    # A replay of the recording asks neither of them.
    replayed = tmp_path / "replayed"
    replayed.mkdir()
    replay = ReplayConfig(name="replay", run=str(tmp_path))
    assert run(replayed, replay, replay) == COMPLETED
    assert (replayed / "predictions.jsonl").read_bytes() == (tmp_path / "predictions.jsonl").read_bytes()
    assert (replayed / "results.json").read_bytes() == (tmp_path / "results.json").read_bytes()


def test_a_resumed_run_does_not_ask_it_again(tmp_path: Path) -> None:
    undisturbed, resumed = tmp_path / "undisturbed", tmp_path / "resumed"
    for folder in (undisturbed, resumed):
        folder.mkdir()
    gold = SpeakerConfig()
    assert run(undisturbed, SpeakerConfig(), gold) == COMPLETED
    first, second = SpeakerConfig(breaks_after=4), SpeakerConfig()
    assert run(resumed, SpeakerConfig(), first).status == "failed"
    assert run(resumed, SpeakerConfig(), second) == COMPLETED
    assert len(first.asked) == 4
    assert len(second.asked) == len(gold.asked) - 4
    for name in ("steps.jsonl", "candidates.jsonl", "predictions.jsonl", "results.json"):
        assert (resumed / name).read_bytes() == (undisturbed / name).read_bytes(), name


def test_an_opinion_that_cannot_be_read_is_asked_for_again_and_then_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpeakerConfig, "opinions", ("It is good.", '{"reasons": "<score>5</score>", "points": [3]}'))
    gold = SpeakerConfig()
    assert run(tmp_path, SpeakerConfig(), gold) == COMPLETED
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["metrics"]["rubric"]["value"], results["metrics"]["rubric"]["n"]) == (0.6, 4)
    # greedy first, then drawn and held to a schema
    assert {(one.sampling.temperature, one.json_schema is None) for one in gold.asked} == {(0.0, True), (1.0, False)}
    different = {(one.messages[0]["content"], one.seed) for one in gold.asked}
    assert results["cost"]["gold"]["calls"] == len(gold.asked) == len(different)
    monkeypatch.setattr(SpeakerConfig, "opinions", ("It is good.", "<score>9</score>"))
    (tmp_path / "unread").mkdir()
    assert run(tmp_path / "unread", SpeakerConfig(), SpeakerConfig()) == COMPLETED
    results = json.loads((tmp_path / "unread" / "results.json").read_text())
    assert results["metrics"]["rubric"] == {"value": None, "ci95": None, "n": 0}  # never 0


class Curious(PerProblem):
    """Looks for the gold judge in all that it is given."""

    name = "curious"
    description = "asks the gold judge"
    regime = "problem_only"
    needs = ()

    async def solve(self, ctx: Context) -> Any:
        assert not hasattr(ctx, "judge")
        assert "gold" not in ctx._models
        await ctx._tools.judge(Prompt(messages=()))  # type: ignore[attr-defined]
        yield


def test_no_method_reaches_it(tmp_path: Path) -> None:
    gold = SpeakerConfig()
    config = make_run_config(
        Curious(), LettersConfig(), SpeakerConfig(), SpeakerConfig(), others={"gold": ServedModel(GOLD, gold)}
    )
    outcome = run_experiment(config, tmp_path, ["evorun"], Terminal())
    assert isinstance(outcome.error, ConfigError)
    assert str(outcome.error).startswith("the method asks for grades, but the task's grade is the gold judge's opinion")
    assert gold.asked == []


async def test_graders_that_methods_hold_are_without_it() -> None:
    loaded = LettersConfig().load()
    with pytest.raises(ConfigError, match=r"expected a reward by a rubric"):
        await loaded.grader.grade(loaded.problems[0], Response(text="dear", answer="dear"), MethodTools(NoTools()))
    # what nobody wrote needs no opinion
    nothing = await loaded.grader.grade(loaded.problems[0], Response(text=" ", answer=None), MethodTools(NoTools()))
    assert nothing.scores == {"rubric": 0.0}


ESSAY = ("task=essay", "task.source=sample", "task.limit=2", "engine=simulated")
LEARNING = ("method.steps=2", "method.problems_per_step=2", "method.eval_every=1", "method.eval_samples=2")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["method=grpo"], r"method=grpo: learns from grades, but grades of task=essay are a judge's opinions"),
        (["method=mpo", "method.exact_match_rate=0.5"], r"method=mpo: learns from grades"),
        (["method=duel_evolve", "judge=oracle"], r"judge=oracle: expected a task with right answers"),
    ],
)
def test_nothing_is_learned_from_an_opinion(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{reason}"):
        check(composed(*ESSAY, *words))


def test_no_method_can_name_it_for_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    zero_shot = method_class("zero_shot")
    monkeypatch.setattr(zero_shot, "roles", {"generate": Role("gold")})
    with pytest.raises(ConfigError, match=r"method=zero_shot: calls the model of role gold, which only grades"):
        check(composed("method=zero_shot", *ESSAY))


def test_a_run_says_where_its_grade_is_its_reward() -> None:
    config = check(composed(*ESSAY, "method=ppo", "method.rubric=expert"))
    [line] = grades_own_reward(config)
    assert line.startswith("the gold judge is the reward model and grades by the reward's rubric (expert)")
    served = ServedModel(GOLD, SpeakerConfig())
    config.others["gold"] = served
    assert grades_own_reward(config) == []
    config.others["reward"] = served
    assert grades_own_reward(config) == [line]
    config.method.config.rubric = "initial"
    assert grades_own_reward(config) == []
    assert grades_own_reward(check(composed("method=zero_shot", *ESSAY))) == []


@pytest.mark.nightly
def test_learning_by_a_rubric_resumes_beside_it_and_replays(tmp_path: Path) -> None:
    """By plans, which the episodes of a problem share, in the order in which they happen to ask."""

    def config(*words: str) -> RunConfig:
        learning = ("method=grpo", "method.rubric=initial", "method.scoring=plan", "method.group=2", *LEARNING)
        return check(composed(*ESSAY[:-1], *learning, "evorun.progress=off", *words))

    whole = carry_out(config("engine=simulated"), tmp_path / "whole")
    assert whole.outcome == COMPLETED
    cost = whole.json("results.json")["cost"]
    assert cost["plan"]["calls"] == 4  # two steps of two problems each
    assert cost["score"]["calls"] >= 8
    assert sum(one["calls"] for role, one in cost.items() if role not in ("total", "gold")) == cost["total"]["calls"]
    assert len(whole.calls()) == cost["total"]["calls"] + cost["gold"]["calls"]
    broken = carry_out(config("engine=simulated"), tmp_path / "resumed", breaks_after=len(whole.asked) // 2)
    assert broken.outcome.status == "failed"
    resumed = carry_out(config("engine=simulated"), tmp_path / "resumed")
    assert resumed.outcome == COMPLETED
    assert len(broken.asked) + len(resumed.asked) == len(whole.asked)
    replayed = carry_out(config("engine=replay", f"engine.run={whole.path}"), tmp_path / "replayed")
    for other in (resumed, replayed):
        assert other.files() == whole.files()
        assert other.results_without_times() == whole.results_without_times()


def test_given_responses_are_graded_by_it(tmp_path: Path) -> None:
    config = check(composed("method=zero_shot", *ESSAY, "evorun.progress=off"))
    run = carry_out(config, tmp_path / "run")
    said = [{"id": one["problem"], "response": one["text"]} for one in run.records("candidates")]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))
    console = Terminal(file=io.StringIO())
    assert grade_file([*ESSAY, "gold=random", f"responses={tmp_path / 'r.jsonl'}"], console) == 0
    graded = [json.loads(line) for line in (tmp_path / "r.graded.jsonl").read_text().splitlines()]
    assert [one["id"] for one in graded] == [one["id"] for one in said]
    assert all(0 <= one["scores"]["rubric"] <= 1 for one in graded)


def test_readers_see_the_gold_judges_score_by_its_label_and_files_by_its_name(tmp_path: Path) -> None:
    assert (RUBRIC.name, text.label(RUBRIC)) == ("rubric", "gold score (scale 0 to 1)")
    sampled = mean_of_samples(RUBRIC)
    assert (sampled.name, text.name_score(sampled)) == ("mean_rubric", "mean gold score")
    assert msgspec.to_builtins(RUBRIC)["label"] == "gold score"
    assert "label" not in msgspec.to_builtins(mean_of_samples(ACCURACY))
    job = JobStatus(folder="a", name="a", state="done", score=RUBRIC.name, score_label=RUBRIC.label, value=0.5)
    headings = [str(column.header) for column in status_table([job], "jobs").columns]
    assert "gold score" in headings
    assert "rubric" not in headings
