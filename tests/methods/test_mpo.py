"""MPO with scripted models and a policy that only takes notes, and whole simulated runs."""

import asyncio
import json
import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from building import composed, make_budget, make_config, make_method
from evorun.errors import ConfigError
from evorun.methods.mpo.refinement_settings import ANALYSE, MERGE, REFINE
from evorun.models.base import Message, Reply, Request
from evorun.runner.settings import check
from evorun.runs.candidates import Response
from evorun.runs.journal import Journal
from evorun.runs.reading import read_rollouts
from evorun.tasks.base import Problem, Prompt
from evorun.tasks.rubrics import Rubric, RubricItem, read_rubric
from evorun.testing.runs import COMPLETED, Run, carry_out
from evorun.training.wire import Figures, PolicyGradient, Row
from learning_fixture import NotedPolicy, Sampled, Trained, train
from method_fixture import Ask, Quiz, RubricQuiz
from virtual_time import run_virtually


class Scored(RubricQuiz):
    """A quiz whose responses can be scored by a rubric."""

    def starting_rubric(self, name: str, rubric_key: str) -> Rubric:
        return Rubric(f"The {name} rubric.", 5.0)

    def scoring_prompt(
        self,
        problem: Problem,
        response: Response,
        rubric: Rubric,
        item: RubricItem | None = None,
        plan: str | None = None,
        **_: Any,
    ) -> Prompt:
        content = {"response": response.text, "rubric": rubric.text, "items": len(rubric.items)}
        return Prompt(messages=(Message(role="user", content=json.dumps(content)),))

    def planning_prompt(self, problem: Problem, rubric: Rubric, reference: str | None = None) -> Prompt:
        raise NotImplementedError


def refined(ask: Ask) -> str:
    most = 9 + ask.step + ask.index
    return f"<rubric>\n<item>\nWorth\n- {most}: Good, by step {ask.step}.\n- 0: Bad.\n</item>\n</rubric>"


def say(ask: Ask) -> str | None:
    """Responses good and bad in turn; points for good ones; rubrics that tell the step that wrote them."""
    if ask.role in ("rollout", "evaluate", "calibrate"):
        return ("good", "bad")[(ask.step + ask.index) % 2]
    if ask.role == "score":
        points = 4 if ask.shown["response"] == "good" else 1
        if not ask.shown["items"]:
            return f"So it is. <score>{points}</score>"
        return f'So it is. <score item="1">{points}</score> <total>{points}</total>'
    return "It is deserved." if ask.role == "analyse" else refined(ask)


def rubrics(trained: Trained) -> list[dict[str, Any]]:
    """Return the records of the rubrics, in order."""
    return [one for one in trained.records("candidates") if one["kind"] == "rubric"]


STAGES = (ANALYSE, REFINE, MERGE)
PPO: dict[str, Any] = {"method": "ppo", "task": Scored(), "group": 1, "problems_per_step": 4, "rubric": "initial"}
MPO: dict[str, Any] = {**PPO, "method": "mpo", "refine_every": 1, "refine_samples": 2}


async def test_a_fixed_rubric_rewards_and_what_cannot_be_scored_is_left_out(tmp_path: Path) -> None:
    """The first score is read, the second at the third try; the third and fourth never."""

    def script(ask: Ask) -> str | None:
        if ask.role != "score" or ask.index == 0:
            return say(ask)
        episode = ask.index // 64
        if episode == 1 and ask.attempt == 2:
            return "<score>1/5</score>"
        return "about <score>3</score> or <score>4</score>" if episode < 3 else "no score"

    trained = await train(tmp_path, script, **PPO, steps=1, eval_samples=0)
    [batch] = trained.policy.batches
    assert [row.reward for row in batch] == [1.0, 1.0]
    rollouts = read_rollouts(trained.folder)
    assert [(one.rubric, one.reward, one.raw, one.maximum, one.normalised, one.unscored) for one in rollouts] == [
        ("rubric#0", 1.0, 1.0, 5.0, 0.2, UNSET),
        ("rubric#0", 1.0, 1.0, 5.0, 0.2, UNSET),
        ("rubric#0", None, UNSET, UNSET, UNSET, "several"),
        ("rubric#0", None, UNSET, UNSET, UNSET, "missing"),
    ]
    [record] = trained.records("training")
    figures = record["figures"]
    assert (figures["reward"], figures["reward_raw"], figures["reward_normalised"]) == (1.0, 1.0, 0.2)
    assert (figures["reward_unscored_several"], figures["reward_unscored_missing"]) == (0.25, 0.25)
    assert "formatted" not in figures
    assert figures["monitor_words"] == 1.0
    assert trained.cost()["score"] == 1 + 3 + 3 + 3
    [rubric] = rubrics(trained)
    assert (rubric["id"], rubric["kind"], rubric["text"]) == ("rubric#0", "rubric", "The initial rubric.")
    artifact = json.loads((trained.folder / "artifacts" / "rubrics.json").read_text())
    assert artifact == {"": {"id": "rubric#0", "maximum": 5.0, "text": "The initial rubric."}}


@pytest.mark.parametrize("fixed", [PPO, {**MPO, "refine_schedule": "never"}])
async def test_a_fixed_rubric_is_never_refined(fixed: dict[str, Any], tmp_path: Path) -> None:
    trained = await train(tmp_path, say, **fixed, steps=2)
    spreads = [record["figures"]["reward_spread"] for record in trained.records("training")]
    assert spreads == [pytest.approx(0.3)] * 2  # of 4/5 and 1/5
    assert not {*STAGES} & {*trained.cost()}
    assert [one["id"] for one in rubrics(trained)] == ["rubric#0"]


async def test_system_prompts_and_rubrics_evolve_in_one_run(tmp_path: Path) -> None:
    """A pair that neither paper has: E-SPL under MPO's rewards."""

    def script(ask: Ask) -> str | None:
        if ask.role in ("critique", "aggregation"):
            edit = {"op": "add", "text": f"Be good in step {ask.step}."}
            return json.dumps({"analysis": "because", "edits": [edit]})
        return "a summary" if ask.role == "summary" else say(ask)

    both: dict[str, Any] = {
        **{"method": "espl", "task": Scored(), "prompts": 2, "crossover_rate": 0.0, "rubric": "initial"},
        **{"refine_every": 1, "refine_samples": 2, "steps": 3},
    }
    whole = await train(tmp_path / "whole", script, **both)
    candidates = whole.records("candidates")
    assert [one["id"] for one in candidates if one["kind"] == "system_prompt"] == ["0.0", "1.0", "2.0", "3.0"]
    assert [one["id"] for one in rubrics(whole)] == ["rubric#0", "rubric#1", "rubric#2"]
    rollouts = read_rollouts(whole.folder)
    assert {(one.step, one.rubric) for one in rollouts} == {(step + 1, f"rubric#{step}") for step in range(3)}
    assert {one.candidate for one in rollouts if one.step == 2} == {"0.0", "1.0"}
    # advantages are within a prompt's group on a problem, of points by the rubric
    for group in (rollouts[first : first + 3] for first in range(0, len(rollouts), 3)):
        mean = sum(one.raw for one in group) / 3
        assert [one.advantage for one in group] == pytest.approx([one.raw - mean for one in group])
    assert {*STAGES, "summary", "critique", "aggregation", "score"} <= {*whole.cost()}


@pytest.mark.nightly  # the run before has rubrics alone
def test_a_run_whose_prompts_and_rubrics_evolve_resumes_as_if_it_had_not_broken_down(tmp_path: Path) -> None:
    words = (
        *("method=espl", "method.rubric=initial", "task=billsum", "task.source=sample", "task.limit=2"),
        *("engine=simulated", "evorun.progress=off", "method.steps=4", "method.refine_every=1", "method.eval_every=2"),
        *("method.problems_per_step=2", "method.group=2", "method.refine_samples=2", "method.eval_samples=0"),
    )
    whole = carry_out(check(composed(*words)), tmp_path / "whole")
    candidates = whole.records("candidates")
    for kind in ("rubric", "system_prompt"):
        assert sum(one["kind"] == kind for one in candidates) > 1
    carry_out(check(composed(*words)), tmp_path / "run", breaks_after=len(whole.calls()) // 2)
    resumed = carry_out(check(composed(*words)), tmp_path / "run")
    assert resumed.outcome == COMPLETED
    assert resumed.files() == whole.files()


async def test_the_share_of_right_answers_is_of_those_that_were_graded(tmp_path: Path) -> None:
    """Problems that are drawn for it are rewarded by the task's own grade."""
    mixed = {"exact_match_rate": 0.5, "mode_drawn": "item", "steps": 1, "problems_per_step": 8}
    trained = await train(tmp_path, lambda ask: "right" if ask.role == "rollout" else say(ask), **{**PPO, **mixed})
    [record] = trained.records("training")
    assert 0 < record["figures"]["reward_exact_match"] < 1
    assert record["figures"]["correct"] == 1


@pytest.mark.parametrize(
    ("trainer", "expected"), [("ppo", [None] * 4), ("grpo", [-1.5, 1.5] * 2), ("rloo", [-3, 3] * 2)]
)
async def test_the_trainer_decides_what_is_made_of_the_rewards(
    trainer: str, expected: list[float | None], tmp_path: Path
) -> None:
    trained = await train(tmp_path, say, **{**MPO, "group": 2, "problems_per_step": 2}, trainer=trainer, steps=1)
    [batch] = trained.policy.batches
    assert [row.reward for row in batch] == [1, 4, 1, 4]
    assert [row.advantage for row in batch] == expected
    rollouts = read_rollouts(trained.folder)
    assert [one.reward for one in rollouts] == [1, 4, 1, 4]
    assert [one.advantage for one in rollouts] == ([UNSET] * 4 if trainer == "ppo" else expected)
    objective = trained.driver.method.make_objective(tmp_path)
    own = make_method(trainer, steps=1).make_objective(tmp_path)
    assert type(objective) is type(own)
    assert isinstance(own, PolicyGradient) or objective.settings == own.settings


async def test_the_first_update_after_a_rubrics_change_is_told_so(tmp_path: Path) -> None:
    """The rubric changes after steps 2 and 4; nothing of step 3 can be scored, so step 4 has the first update by it."""

    def script(ask: Ask) -> str | None:
        return "no score" if ask.role == "score" and ask.step == 3 else say(ask)

    trained = await train(tmp_path, script, **{**MPO, "refine_every": 2}, steps=6, eval_samples=0)
    assert len(trained.policy.batches) == 5
    assert trained.policy.changed_rewards == [4, 5]
    maxima = [line["figures"].get("reward_maximum") for line in trained.records("training")]
    totals = [read_rubric(one["text"]).maximum if one["parents"] else 5.0 for one in rubrics(trained)]
    assert maxima == [totals[0], totals[0], None, totals[1], totals[2], totals[2]]


class Waits(NotedPolicy):
    """An update does not end before the rubrics of its step have been merged, nor they before it has begun."""

    def __init__(self, max_lag: int, steps: int) -> None:
        super().__init__(max_lag)
        self.steps = steps
        self.merged: dict[int, asyncio.Event] = {}

    def script(self, ask: Ask) -> str | None:
        if ask.role == "merge":
            self.merged.setdefault(ask.step, asyncio.Event()).set()
        return say(ask)

    async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False, **_: Any) -> Figures:
        if step + self.max_lag < self.steps:  # else no batch would be scored by what is merged
            await self.merged.setdefault(step, asyncio.Event()).wait()
        return await super().update(step, rows, rewards_changed=rewards_changed)


@pytest.mark.parametrize("lag", [0, 1])
async def test_rubrics_are_refined_beside_the_update_and_reward_by_the_step(lag: int, tmp_path: Path) -> None:
    """With a lag a step is played while the one before is refined on, and so is scored by a rubric the older."""
    policy = Waits(lag, steps=4)
    trained = await train(tmp_path, policy.script, policy=policy, **MPO, steps=4)
    assert len(policy.batches) == 4
    shown = {(ask.step, ask.shown["rubric"]) for ask in trained.model.of("score")}
    texts = {0: "The initial rubric.", **{one["generation"]: one["text"] for one in rubrics(trained)[1:]}}
    assert sorted(texts) == list(range(4 - lag))  # none that no batch would be scored by
    assert shown == {(step, texts[max(0, step - 1 - lag)]) for step in range(1, 5)}
    assert [one.rubric for one in read_rollouts(trained.folder)[::4]] == [
        f"rubric#{max(0, step - 1 - lag)}" for step in range(1, 5)
    ]
    assert [one["parents"] for one in rubrics(trained)[1:]] == [[f"rubric#{number}"] for number in range(3 - lag)]
    last = json.loads((trained.folder / "artifacts" / "rubrics.json").read_text())[""]
    assert last["id"] == f"rubric#{3 - lag}"
    # the reward's scale is the rubric's: the same points are worth less under a larger total
    figures = [line["figures"] for line in trained.records("training")]
    assert [one["reward_raw"] for one in figures] == [2.5] * 4
    assert figures[3]["reward_normalised"] == pytest.approx(2.5 / (12 - lag))


async def test_a_rubric_that_is_refined_before_the_first_step_rewards_all_of_them(tmp_path: Path) -> None:
    """The baseline in the manner of AutoPrompt (section 3.1)."""
    rounds = {"refine_schedule": "before", "refine_rounds": 2, "refine_pool": 3}
    trained = await train(tmp_path, say, **MPO, **rounds, steps=2)
    *_, last = texts = [one["text"] for one in rubrics(trained)]
    assert len(texts) == 3
    assert {ask.shown["rubric"] for ask in trained.model.of("score") if ask.step > 0} == {last}
    assert {ask.step for ask in trained.model.asked if ask.role in STAGES} == {0}
    asked = [ask.role for ask in trained.model.asked]
    assert max(at for at, role in enumerate(asked) if role == "merge") < asked.index("rollout")


# An evaluation takes 2 calls, a step 4 rollouts and up to 12 scores, and each second one 2 analyses, 2 refinements and
# a merging, of which rubrics are asked for up to 3 times, and up to 12 scores of proposals; the first evaluation comes
# before it. What the refinement then does not take pays for the third step.
@pytest.mark.parametrize(("calls", "steps"), [(2 + 17, 0), (2 + 18, 1), (2 + 8 + 40, 1), (2 + 8 + 41, 3)])
async def test_the_budget_pays_for_scores_and_refinements_of_a_step_that_is_begun(
    calls: int, steps: int, tmp_path: Path
) -> None:
    few = {**MPO, "refine_every": 2, "steps": 3, "eval_samples": 0, "eval_every": 3}
    trained = await train(tmp_path, say, budget=make_budget(calls=calls), **few)
    assert len(trained.policy.batches) == steps
    made = Counter(ask.role for ask in trained.model.asked)
    assert made["score"] == made["rollout"] == 4 * steps
    assert (made["analyse"], made["refine"], made["merge"]) == ((2, 2, 1) if steps >= 2 else (0, 0, 0))
    assert made.total() <= calls
    assert [line["step"] for line in trained.records("steps")][-1] == steps


def test_refinement_takes_no_time_that_the_update_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time: a step takes its update's or its refinement's seconds, whichever are more."""

    async def unrecorded(self: Journal, key: str, about: bytes, compute: Any, kind: type) -> Any:
        return await compute()

    monkeypatch.setattr(Journal, "remember", unrecorded)  # it writes in a thread, for which no virtual time passes

    class Slow(NotedPolicy):
        seconds = 20.0

        async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False, **_: Any) -> Figures:
            await asyncio.sleep(self.seconds)
            return await super().update(step, rows, rewards_changed=rewards_changed)

    class Fast(Slow):
        seconds = 1.0

    class SlowMeta(Sampled):
        async def complete(self, key: str, request: Request, step: int) -> Reply:
            await asyncio.sleep(3 if key.split("|")[2] in STAGES else 0)
            return await super().complete(key, request, step)

    async def timed(name: str, policy: Slow, **config: Any) -> float:
        begun = asyncio.get_running_loop().time()
        await train(tmp_path / name, say, policy=policy, model=SlowMeta, **config, steps=2)
        return asyncio.get_running_loop().time() - begun

    assert run_virtually(timed("ppo", Slow(), **PPO)) == 2 * 20
    assert run_virtually(timed("mpo", Slow(), **MPO)) == 2 * 20
    # analysis, refinement and merging in turn, after the first step: none follows the last
    assert run_virtually(timed("fast", Fast(), **MPO)) == 3 * 3 + 1


# --- settings and texts ---


@pytest.mark.parametrize(
    ("method", "changes", "expected"),
    [
        ("mpo", {"trainer": "sac"}, "method.trainer: expected one of "),
        ("mpo", {"trainer": "grpo", "group": 1}, "method.group: expected a number >= 2, got 1"),
        ("mpo", {"trainer": "cispo", "clip_high": 0.2}, "method.clip_low, method.clip_high: with cispo expected"),
        ("mpo", {"rubric": None}, "method.rubric: expected an initial rubric"),
        ("ppo", {"rubric": "initial", "format_reward": 0.1}, "method.format_reward: has no effect with"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(method: str, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^{expected}"):
        make_config("method", method, **changes)


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["method=grpo", "reward=qwen2_5_7b"], "reward"),
        (["method=ppo", "method.rubric=initial", "meta=qwen2_5_7b"], "meta"),
    ],
)
def test_a_model_that_nothing_is_asked_of_is_refused(words: list[str], role: str) -> None:
    with pytest.raises(ConfigError, match=f"^{role}: has no effect, method=[a-z]+ asks no {role} model"):
        check(composed(*words, "task=arithmetic", "engine=simulated"))


def test_a_fixed_rubric_needs_a_task_with_rubrics() -> None:
    method = make_method("grpo", rubric="initial")
    assert method.incompatibility(Quiz) == "method.rubric: task=quiz has no rubrics; leave it null"
    assert method.incompatibility(Scored) is None


@pytest.mark.parametrize(
    ("method", "changes", "expected"),
    [
        ("ppo", {}, "labels"),
        ("ppo", {"rubric": "initial"}, "problem_only"),
        ("ppo", {"rubric": "initial", "exact_match_rate": 0.5}, "labels"),
        ("mpo", {}, "problem_only"),
        ("mpo", {"references": True}, "labels"),
        ("mpo", {"scoring": "plan", "plan_reference": True}, "labels"),
    ],
)
def test_the_regime_says_whether_right_answers_are_seen(method: str, changes: dict[str, Any], expected: str) -> None:
    assert make_method(method, **changes).information_regime(Scored) == expected


HOSTILE = (
    *("", "\x00", "<score>5</score>", "{" * 500, "A" * 20_000, "<rubric>" * 50),
    "\ud800<rubric><item>\ud800\n- 5: x\n- 0: y</item></rubric>",
)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("reward=gpt_4o", "reward_engine=openai"), "OpenAI's API, whose schemas describe only objects"),
        (
            ("reward=qwen2_5_32b_awq", "reward_engine=server", "reward_engine.structured_outputs=none"),
            "structured_outputs=none",
        ),
    ],
)
def test_an_engine_that_holds_no_reply_to_digits_is_refused_before_the_run(words: tuple[str, ...], what: str) -> None:
    every = ("method=mpo", "task=essay", "task.source=sample", "engine=simulated", *words)
    check(composed(*every))
    with pytest.raises(ConfigError, match=f"^method.reward_digits: expected .*, got {what}; set "):
        check(composed(*every, "method.reward_digits=true"))
    own = ("reward_engine.structured_outputs=json_schema",)
    check(
        composed(
            *every[: -len(words)], "reward=qwen2_5_32b_awq", "reward_engine=server", *own, "method.reward_digits=true"
        )
    )


async def test_hostile_texts_are_data(tmp_path: Path) -> None:
    def script(ask: Ask) -> str | None:
        number = ask.index + ask.attempt + 3 * ask.step
        if number % 2:
            return say(ask)
        # no engine gives a policy's words that are not well-formed
        return HOSTILE[number // 2 % (len(HOSTILE) - (ask.role in ("rollout", "evaluate")))]

    trained = await train(tmp_path, script, **MPO, steps=6)
    assert len(trained.records("training")) == 6
    assert sum(trained.cost().values()) == len(trained.model.asked)


# --- whole runs, with a simulated policy, reward model and meta reward model ---

RUN = (
    *("task=arithmetic", "task.test_problems=2", "engine=simulated", "engine.mean_tokens=5", "method.rubric=initial"),
    *("method.steps=4", "method.problems_per_step=4", "method.eval_every=2", "method.eval_samples=1"),
)
REFINED = ("method=mpo", *RUN, "method.refine_every=1", "method.refine_samples=2")
SCRIPT = Path(__file__).parents[2] / "scripts" / "measure_mpo_overhead.py"
KINDS = ("prompt", "completion")
FILES = ("training.jsonl", "rollouts.jsonl", "candidates.jsonl", "steps.jsonl", "artifacts/rubrics.json")


def run(folder: Path, *overrides: str, **stop: int) -> Run:
    return carry_out(check(composed(*overrides, "evorun.progress=off")), folder, **stop)


def left(run: Run) -> dict[str, bytes]:
    return {name: (run.path / name).read_bytes() for name in FILES}


@pytest.mark.nightly
def test_without_refinements_it_is_ppo_under_the_same_rubric(tmp_path: Path) -> None:
    """To the bit: the same calls, and the same rows for the same updates of a trainer that is told the same."""
    assert make_method("mpo").make_objective(tmp_path) == make_method("ppo").make_objective(tmp_path)
    ppo = run(tmp_path / "ppo", "method=ppo", *RUN)
    mpo = run(tmp_path / "mpo", "method=mpo", "method.refine_every=9", *RUN)
    assert ppo.outcome == mpo.outcome == COMPLETED
    assert left(mpo) == left(ppo)
    assert [one[:2] for one in mpo.effects()] == [one[:2] for one in ppo.effects()]
    assert sum("|update|" in key for key, *_ in ppo.effects()) == 4


def test_a_run_that_breaks_down_ends_as_if_it_had_not_and_a_replay_too(tmp_path: Path) -> None:
    """In rollouts, scores, analyses, refinements and evaluations, with the next batch played beside."""
    overrides = (*REFINED, "training.max_lag=1")
    whole = run(tmp_path / "whole", *overrides)
    assert whole.outcome == COMPLETED
    assert len([one for one in whole.records("candidates") if one["kind"] == "rubric"]) > 2
    for calls in range(5, len(whole.asked), len(whole.asked) // 2):
        stopped = tmp_path / f"stopped{calls}"
        assert run(stopped, *overrides, breaks_after=calls).outcome.status == "failed"
        again = run(stopped, *overrides)
        assert again.outcome == COMPLETED
        assert len(again.asked) == len(whole.asked) - calls
        assert left(again) == left(whole)
        assert [one[:2] for one in again.effects()] == [one[:2] for one in whole.effects()]
    cost = whole.json("results.json")["cost"]  # what refinement adds is told apart (MPO, table 8)
    assert all(cost[role]["calls"] for role in ("rollout", "score", *STAGES))
    told = runpy.run_path(str(SCRIPT))["overhead"](whole.path)
    assert (told.calls, told.tokens) == (cost["total"]["calls"], sum(cost["total"][f"{one}_tokens"] for one in KINDS))
    assert told.calls_of_refinement == sum(cost[role]["calls"] for role in STAGES)
    assert len([key for key, *_ in whole.effects() if "|beyond_update|" in key]) == 2
    words = [word for word in overrides if not word.startswith("engine")]
    replayed = run(tmp_path / "replayed", *words, "engine=replay", f"engine.run={whole.path}")
    assert (replayed.outcome, left(replayed)) == (COMPLETED, left(whole))
