"""E-SPL's loop, with a scripted model and a policy that only takes notes."""

import asyncio
import dataclasses
import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pytest

from building import composed, make_budget, make_config, make_method, simulated_run
from evorun.errors import ConfigError
from evorun.methods.espl.espl import EsplConfig, episodes_of_prompt, rank_players, score_matrix
from evorun.methods.espl.system_prompts import SystemPrompt, read_principles, read_roots
from evorun.methods.learning.parts import Batch, DrawnPrompt
from evorun.methods.learning.policy_gradient import GrpoConfig
from evorun.methods.mpo.refinement_settings import RefinementSettings
from evorun.models import Reply, Request
from evorun.ratings import trueskill
from evorun.rollouts.episodes import Asked, Episode
from evorun.rollouts.rewards import Reward
from evorun.runner.settings import check
from evorun.runs.candidates import Response
from evorun.runs.reading import read_rollouts
from evorun.tasks.base import Prompt, Task
from evorun.testing.runs import COMPLETED, carry_out
from evorun.training.wire import Figures, Row
from learning_fixture import NotedPolicy, Sampled, Trained, train
from method_fixture import SEED_INSTRUCTION, Ask, Quiz, problem

ESPL: dict[str, Any] = {"method": "espl", "prompts": 2, "crossover_rate": 0.0}
METHODS = ("espl", "espl_evolution", "espl_self_reflection")
OPERATORS = ("summary", "critique", "proposal", "aggregation", "crossover")


def edits(*texts: str) -> str:
    return json.dumps({"analysis": "because", "edits": [{"op": "add", "text": text} for text in texts]})


def learning(ask: Ask) -> str:
    """Rollouts are right one time in three, with principles two; every reflection adds a principle of its own."""
    if ask.role in ("rollout", "evaluate"):
        return "right" if ask.index % 3 <= ("[G1]" in (ask.instruction or "")) else "wrong"
    return f"summary {ask.index}" if ask.role == "summary" else edits(f"{ask.role} {ask.index} of step {ask.step}")


def prompts(trained: Trained) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in trained.records("candidates") if one["kind"] == "system_prompt"}


# --- the loop ---


@pytest.mark.parametrize("baseline", ["draw", "problem"])
@pytest.mark.parametrize(
    ("prompts", "under", "root"),
    [(1, {"system_prompt": "Be right."}, "Be right."), (3, {"task_instruction": True}, None)],
)
async def test_without_evolution_it_is_grpo_under_draws_of_the_root(
    prompts: int, under: dict[str, Any], root: str | None, baseline: str, tmp_path: Path
) -> None:
    """In its requests, in the rows that it learns from, and in what the trainer is told."""
    same: dict[str, Any] = {"loss": "dapo", "eval_samples": 1, "steps": 3, "baseline": baseline}
    one = await train(tmp_path / "espl", method="espl", prompts=prompts, evolve=False, system_prompt=root, **same)
    other = await train(tmp_path / "grpo", method="grpo", draws=prompts, **under, **same)
    assert one.model.everything() == other.model.everything()
    assert {ask.instruction for ask in other.model.asked} == {root or SEED_INSTRUCTION}
    assert one.policy.batches == other.policy.batches != []
    objectives = [made.driver.method.make_objective(tmp_path) for made in (one, other)]  # type: ignore[attr-defined]
    assert objectives[0] == objectives[1]


async def test_different_prompts_that_stay_are_rated_and_the_best_is_tested(tmp_path: Path) -> None:
    """The control of evolution: as many prompts, which nothing edits."""

    def script(ask: Ask) -> str:
        assert ask.role in ("rollout", "evaluate")  # nothing reflects
        return "right" if "[G1] b" in (ask.instruction or "") and ask.index % 3 else "wrong"

    given = {"method": "espl", "prompts": 3, "evolve": False, "other_roots": [["a"], ["b"]], "eval_every": 1}
    trained = await train(tmp_path / "run", script, steps=2, **given)
    known = prompts(trained)
    assert [(one["id"], one["operator"]) for one in known.values()] == [(f"0.{n}", "root") for n in range(3)]
    assert all(one["text"].startswith(SEED_INSTRUCTION) for one in known.values())
    for step in (1, 2):  # all three on each problem, not one of them twice
        assert {ask.instruction for ask in trained.model.of("rollout") if ask.step == step} == {
            one["text"] for one in known.values()
        }
    tested = [{ask.instruction for ask in trained.model.of("evaluate") if ask.step == step} for step in range(3)]
    assert tested == [{known["0.0"]["text"]}, {known["0.2"]["text"]}, {known["0.2"]["text"]}]


async def test_each_problem_of_a_batch_is_tried_by_every_prompt(tmp_path: Path) -> None:
    trained = await train(tmp_path / "run", learning, steps=2, **ESPL)
    rollouts = [one for one in read_rollouts(trained.folder) if one.step == 2]
    tried = Counter((one.problem, one.candidate) for one in rollouts)
    assert set(tried.values()) == {3}
    assert len(tried) == 2 * 2  # problems, prompts: the root and its child
    texts = {one["id"]: one["text"] for one in prompts(trained).values()}
    asked = {ask.index: ask.instruction for ask in trained.model.of("rollout") if ask.step == 2}
    assert all(asked[one.index] == texts[str(one.candidate)] for one in rollouts)
    # advantages are of the group: one prompt on one problem
    for group in (rollouts[i : i + 3] for i in range(0, 12, 3)):
        mean = sum(one.reward or 0.0 for one in group) / 3
        assert [one.advantage for one in group] == pytest.approx([(one.reward or 0.0) - mean for one in group])
    assert [row.advantage for row in trained.policy.batches[1]] == [one.advantage for one in rollouts]


async def test_the_best_prompt_of_a_batch_has_a_child_and_its_rollouts_are_to_blame(tmp_path: Path) -> None:
    trained = await train(tmp_path / "run", learning, steps=2, **ESPL)
    known = prompts(trained)
    assert list(known) == ["0.0", "1.0", "2.0"]
    assert known["0.0"]["text"] == SEED_INSTRUCTION
    child = known["1.0"]
    assert (child["parents"], child["operator"], child["call"]) == (["0.0"], "mutation", "*|1|aggregation|0|0")
    assert "aggregation 0 of step 1" in child["text"]
    assert "critique 0 of step 1" in child["reflection"]
    rollouts = {one.call: one for one in read_rollouts(trained.folder)}
    assert {rollouts[call].candidate for call in child["blamed"]} == {"0.0"}
    # N rollouts of each problem, though the root was drawn twice
    assert len(child["blamed"]) == len([one for one in trained.model.of("summary") if one.step == 1]) == 2 * 3
    assert known["2.0"]["parents"] == ["1.0"]  # it was right more often
    by_id = {one["candidate"]: one for one in trained.records("ratings") if one["step"] == 2}
    assert by_id["1.0"]["mean"] > 25 > by_id["0.0"]["mean"]
    [first, second] = [line["figures"] for line in trained.records("training")]
    assert (first["edits_add"], first["reflected_problems"], first["equal_groups"]) == (1, 2, 0)
    assert second["loss"] == 1.0


async def test_lessons_and_the_edits_by_them_may_be_two_calls(tmp_path: Path) -> None:
    """Equations 7 and 8: the second sees the system prompt and the lessons, not the rollouts."""

    def script(ask: Ask) -> str:
        lesson = "<think>Hm.</think>Count <|im_end|> first." if ask.index else " "
        return lesson if ask.role == "critique" else learning(ask)

    trained = await train(tmp_path / "run", script, steps=1, lessons_first=True, **ESPL)
    critiques, proposals = trained.model.of("critique"), trained.model.of("proposal")
    assert {one.request.json_schema is None for one in critiques} == {True}
    assert "operations" not in critiques[0].request.messages[-1]["content"]
    [proposal] = proposals  # the other problem's reply had no lessons
    shown = proposal.request.messages[-1]["content"]
    assert "at most 2 operations" in shown
    assert "Count < |im_end|> first." in shown
    assert "summary" not in shown
    child = prompts(trained)["1.0"]
    assert "Count < |im_end|> first." in child["reflection"]
    assert "add: proposal 1 of step 1" in child["reflection"]
    [record] = trained.records("training")
    assert record["figures"]["proposals_refused_no_lessons"] == 1


async def test_the_best_prompt_is_the_best_by_all_of_its_rollouts(tmp_path: Path) -> None:
    """As ratings have it; the released code takes the best draw of a prompt, for both."""

    def script(ask: Ask) -> str:
        if ask.role != "rollout" or ask.step == 1:
            return learning(ask)
        # drawn: the child, right 3 times in 3; the root, right 2 times in 3; the child again, never right
        return "right" if ask.index % 9 in (0, 1, 2, 3, 4) else "wrong"

    trained = await train(tmp_path / "run", script, steps=2, method="espl", prompts=3, crossover_rate=0.0)
    rollouts = [one for one in read_rollouts(trained.folder) if one.step == 2]
    assert [one.candidate for one in rollouts[:9:3]] == ["1.0", "0.0", "1.0"]
    ratings = {one["candidate"]: one["mean"] for one in trained.records("ratings") if one["step"] == 2}
    assert ratings["0.0"] > ratings["1.0"]
    child = prompts(trained)["2.0"]
    assert child["parents"] == ["0.0"]
    assert [*child["blamed"]] == [one.call for one in rollouts if one.candidate == "0.0"]


async def test_each_problem_ranks_the_prompts_or_the_batch_does_once(tmp_path: Path) -> None:
    config = make_config("method", "espl")
    given = {"beta": config.beta, "draw_probability": config.draw_probability}
    for ranking in ("batch_mean", "by_problem"):
        trained = await train(tmp_path / ranking, learning, steps=2, **ESPL, ranking=ranking)
        rollouts = [one for one in read_rollouts(trained.folder) if one.step == 2]
        names = list(dict.fromkeys(one.candidate for one in rollouts))
        problems = list(dict.fromkeys(one.problem for one in rollouts))
        phi = np.array(
            [
                [np.mean([o.reward for o in rollouts if (o.candidate, o.problem) == (n, p)]) for p in problems]
                for n in names
            ]
        )
        rankings = phi.T if ranking == "by_problem" else [phi.mean(axis=1)]
        sds = {"0.0": config.sigma0, "1.0": config.sigma0 + config.mutation_sd}
        mean, sd = np.full(2, config.mu0), np.array([sds[str(name)] for name in names])
        for number, values in enumerate(rankings):
            order = np.argsort(-values, kind="stable")
            ranks = [0, int(values[order[0]] - values[order[1]] > 0.01)]
            tau = 0.0 if number else config.tau
            mean[order], sd[order] = trueskill.rate(mean[order], sd[order], ranks, tau=tau, **given)
        rated = {one["candidate"]: one["mean"] for one in trained.records("ratings") if one["step"] == 2}
        assert [rated[str(name)] for name in names] == pytest.approx(mean.tolist())


@pytest.mark.parametrize(
    ("method", "reply", "drifts"), [("espl", None, True), ("espl", "right", False), ("espl_evolution", None, False)]
)
async def test_skills_drift_with_an_update_of_the_weights_and_not_without(
    method: str, reply: str | None, drifts: bool, tmp_path: Path
) -> None:
    """Of the root alone, which no ranking moves; where all rewards are equal there is no update."""
    given = {"method": method, "drift": "by_update", "tau": 3.0, "prompts": 2, "evolve": False}
    trained = await train(tmp_path / "run", lambda ask: reply or learning(ask), steps=1, **given)
    [*_, last] = trained.records("ratings")
    sigma0 = make_config("method", "espl").sigma0
    assert last["sd"] == pytest.approx((sigma0**2 + 9) ** 0.5 if drifts else sigma0)


async def test_a_random_ranking_rates_the_worse_prompt_as_often(tmp_path: Path) -> None:
    def told_apart(ask: Ask) -> str:
        if ask.role != "rollout" or ask.step == 1:
            return learning(ask)
        return "right" if ("[G1]" in (ask.instruction or "")) or ask.index % 3 == 2 else "wrong"

    ahead, mothers = {}, {}
    for ranking in ("batch_mean", "random"):
        runs = [
            await train(tmp_path / f"{ranking} {seed}", told_apart, steps=2, seed=seed, **ESPL, ranking=ranking)
            for seed in range(6)
        ]
        means = [{one["candidate"]: one["mean"] for one in run.records("ratings") if one["step"] == 2} for run in runs]
        ahead[ranking] = sum(one["1.0"] > one["0.0"] for one in means)
        # The mutant's parent is the batch's first, whatever ranks it
        mothers[ranking] = [prompts(run)["2.0"]["parents"] for run in runs if "2.0" in prompts(run)]
        for one, [parent] in zip(
            [one for run, one in zip(runs, means, strict=True) if "2.0" in prompts(run)], mothers[ranking], strict=True
        ):
            assert one[parent] == max(one["0.0"], one["1.0"])
    assert ahead["batch_mean"] == 6
    assert 1 <= ahead["random"] <= 5


async def test_diversity_of_texts_and_of_scores_is_recorded(tmp_path: Path) -> None:
    trained = await train(tmp_path / "run", learning, **ESPL)
    [first, second, *_] = [line["figures"] for line in trained.records("training")]
    assert "phenotypic_diversity" not in first  # the root alone was played
    assert first["genotypic_diversity"] == 1.0  # it has no principle, its child has one
    texts = [one["text"] for one in list(prompts(trained).values())[:3]]
    assert [text.count("[G") for text in texts] == [0, 1, 2]
    assert second["genotypic_diversity"] == pytest.approx((1 + 1 + 1 / 2) / 3)
    rollouts = [one for one in read_rollouts(trained.folder) if one.step == 2]
    rows = [
        [np.mean([one.reward for one in rollouts if (one.candidate, one.problem) == (name, at)]) for at in problems]
        for problems in [dict.fromkeys(one.problem for one in rollouts)]
        for name in ("0.0", "1.0")
    ]
    assert second["phenotypic_diversity"] == pytest.approx(np.abs(np.subtract(*rows)).mean())


async def test_a_bad_aggregation_does_not_discard_the_reflections(tmp_path: Path) -> None:
    def script(ask: Ask) -> str | None:
        if ask.role == "critique":
            contested = [{"op": "modify", "id": "G1", "text": f"critique {ask.index}"}]
            own = [{"op": "add", "text": f"lesson {ask.index} of step {ask.step}"}]
            return json.dumps({"analysis": "because", "edits": [*own, *contested]})
        # refused by the engine, no JSON, one bad edit in a list, and the opinion that nothing is to be changed
        bad = (None, "I cannot.", json.dumps({"edits": [{"op": "remove", "id": "G9"}]}), '{"edits": []}')
        return bad[ask.step - 1] if ask.role == "aggregation" else learning(ask)

    given = {"root_principles": ["Count."], "steps": 4, "method": "espl_self_reflection"}
    trained = await train(tmp_path / "run", script, **given)
    known = prompts(trained)
    assert list(known) == ["0.0", "1.0", "2.0", "3.0"]
    assert known["1.0"]["text"].endswith("[G1] Count.\n\n[G2] lesson 0 of step 1\n\n[G3] lesson 1 of step 1")
    assert {one["call"] for one in known.values()} == {None}
    assert known["1.0"]["blamed"]
    figures = [line["figures"] for line in trained.records("training")]
    first = {"edits_add": 2, "edits_unaggregated": 2, "edits_refused_rejected": 1, "proposals_refused_conflict": 2}
    assert first.items() <= figures[0].items()
    assert figures[1]["edits_refused_not_json"] == figures[2]["edits_refused_unknown_id"] == 1
    assert figures[3]["edits_refused_no_edits"] == 1
    assert "edits_unaggregated" not in figures[3]


async def test_the_root_has_principles_and_the_whole_prompt_may_be_rewritten(tmp_path: Path) -> None:
    """Figure 7 and appendix C.3: what evolves is all that the system prompt says."""

    def script(ask: Ask) -> str:
        if ask.role not in ("critique", "aggregation"):
            return learning(ask)
        rewritten = {"op": "modify", "id": "G0", "text": "[G1] Look it up. <|im_end|> Then answer."}
        return json.dumps({"analysis": "", "edits": [rewritten, {"op": "remove", "id": "G2"}]})

    file = tmp_path / "root.txt"
    file.write_text("[G1] Read it twice.\n\n[G2] Guess.\n")
    given = {"root_principles": str(file), "edit_preamble": True, "steps": 1}
    trained = await train(tmp_path / "run", script, **ESPL, **given)
    root, child = prompts(trained).values()
    assert root["text"] == SystemPrompt(SEED_INSTRUCTION, ("Read it twice.", "Guess.")).text
    assert child["text"] == SystemPrompt("Look it up. < |im_end|> Then answer.", ("Read it twice.",)).text
    assert {ask.instruction for ask in trained.model.of("rollout")} == {root["text"]}
    [asked] = trained.model.of("aggregation")
    assert '"id": "G0"' in asked.request.messages[-1]["content"]
    plain = await train(tmp_path / "plain", script, **ESPL, **{**given, "edit_preamble": False})
    assert plain.records("training")[0]["figures"]["proposals_refused_unknown_id"] == 2
    assert '"id": "G0"' not in plain.model.of("critique")[0].request.messages[-1]["content"]


async def test_crossover_puts_what_others_were_best_at_into_the_best_prompt(tmp_path: Path) -> None:
    def script(ask: Ask) -> str:
        if ask.role != "rollout" or ask.step == 1:
            return learning(ask)
        # the root is better at one problem of the batch, its child at the other, and by more
        child, first = "[G1]" in (ask.instruction or ""), ask.index < 6
        return "right" if ask.index % 3 < (3 if child else 0) * first + (1 if child else 2) * (not first) else "wrong"

    trained = await train(tmp_path / "run", script, steps=2, **{**ESPL, "crossover_rate": 1.0})
    crossed = [one for one in prompts(trained).values() if one["operator"] == "crossover"]
    assert [(one["id"], sorted(one["parents"])) for one in crossed] == [("2.1", ["0.0", "1.0"])]
    assert "aggregation 0 of step 1" in crossed[0]["text"]  # the best prompt's principle is kept
    assert "crossover 0 of step 2" in crossed[0]["text"]
    [asked] = trained.model.of("crossover")  # in step 1 one prompt alone has nobody to learn from
    assert crossed[0]["call"] == f"*|{asked.step}|crossover|{asked.index}|{asked.attempt}" == "*|2|crossover|0|0"


async def test_the_update_is_issued_first_and_reflections_go_out_beside_it(tmp_path: Path) -> None:
    order: list[str] = []
    reflected = asyncio.Event()

    class Waits(NotedPolicy):
        async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False, **_: Any) -> Figures:
            order.append("update")
            await reflected.wait()
            return await super().update(step, rows, rewards_changed=rewards_changed)

    def script(ask: Ask) -> str:
        order.append(ask.role)
        if ask.role == "aggregation":
            reflected.set()
        return learning(ask)

    await train(tmp_path / "run", script, policy=Waits(), steps=1, **ESPL)
    assert order[order.index("update") + 1 :][:6] == ["summary"] * 6
    assert "summary" not in order[: order.index("update")]


@pytest.mark.parametrize("method", ["espl_evolution", "espl_self_reflection"])
async def test_frozen_weights_learn_nothing_and_need_no_tokens(tmp_path: Path, method: str) -> None:
    trained = await train(tmp_path / "run", learning, method=method, steps=3)
    assert (trained.policy.batches, trained.policy.exported) == ([], 0)
    assert not any(ask.request.token_ids or ask.request.logprobs for ask in trained.model.asked)
    assert {one.advantage for one in read_rollouts(trained.folder)} == {None}
    assert len(prompts(trained)) == 4


async def test_self_reflection_replaces_its_one_prompt(tmp_path: Path) -> None:
    trained = await train(tmp_path / "run", learning, method="espl_self_reflection", steps=3)
    known = prompts(trained)
    assert [one["parents"] for one in known.values()] == [[], ["0.0"], ["1.0"], ["2.0"]]
    rollouts = read_rollouts(trained.folder)
    assert [{one.candidate for one in rollouts if one.step == step} for step in (1, 2, 3)] == [
        {"0.0"},
        {"1.0"},
        {"2.0"},
    ]
    assert trained.artifact("system_prompt.json")["id"] == "3.0"


async def test_principles_may_stand_after_the_problem(tmp_path: Path) -> None:
    def script(ask: Ask) -> str:
        content = ask.request.messages[-1]["content"]
        return learning(ask) if ask.role != "rollout" else "right" if ask.index % 3 <= ("[G1]" in content) else "wrong"

    trained = await train(tmp_path / "run", script, steps=3, eval_every=3, principles_in="user", **ESPL)
    texts = [one["text"] for one in prompts(trained).values()]
    assert texts[0] == ""
    assert "[G1] aggregation 0 of step 1" in texts[1]
    own = ask_of(trained, "rollout", 1)
    assert own == ask_of(await train(tmp_path / "grpo", script, method="grpo"), "rollout", 1)  # the bare problem
    assert {one for one in ask_of(trained, "rollout", 3) if one.endswith(texts[2])}
    assert all(one.endswith(texts[2]) for one in ask_of(trained, "evaluate", 3))


def test_a_task_that_asks_under_a_system_prompt_only_has_nothing_to_put_principles_after() -> None:
    class Bare(Task):
        name = "bare"

    method = make_method("espl", principles_in="user")
    assert (method.incompatibility(Bare) or "").startswith("method.principles_in: task=bare asks only under a ")
    assert method.incompatibility(Quiz) is None
    assert make_method("espl").incompatibility(Bare) is None


def ask_of(trained: Trained, role: str, step: int) -> set[str]:
    return {ask.request.messages[-1]["content"] for ask in trained.model.of(role) if ask.step == step}


async def test_the_problems_of_the_run_are_answered_under_the_best_prompt_or_the_latest(tmp_path: Path) -> None:
    def script(ask: Ask) -> str:  # the first child is good, all others are bad
        if ask.role in ("rollout", "evaluate"):
            good = "of step 1" in (ask.instruction or "") and "of step 2" not in (ask.instruction or "")
            return "right" if ask.index % 3 <= good else "wrong"
        return learning(ask)

    said: dict[str, Any] = {}
    for which in ("best", "latest"):
        trained = await train(tmp_path / which, script, steps=4, eval_every=4, eval_prompt=which, **ESPL)
        asked = {ask.instruction for ask in trained.model.of("evaluate") if ask.step == 4}
        assert len(asked) == 1
        said[which] = next(one["id"] for one in prompts(trained).values() if {one["text"]} == asked)
        saved = trained.artifact("system_prompt.json")
        assert (saved["id"], saved["preamble"]) == ("1.0", SEED_INSTRUCTION)
        assert saved["text"] == prompts(trained)["1.0"]["text"]
    assert said == {"best": "1.0", "latest": "4.0"}


# a step takes 12 rollouts and 9 reflections, an evaluation 4 calls
# and a crossover, where there may be one, another reflection
@pytest.mark.parametrize(
    ("calls", "steps", "crossovers"), [(29, 1, 0.0), (28, 0, 0.0), (50, 2, 0.0), (1000, 4, 0.0), (29, 0, 0.1)]
)
async def test_the_budget_ends_the_run_and_pays_for_the_last_evaluation(
    calls: int, steps: int, crossovers: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**ESPL, "crossover_rate": crossovers}
    with caplog.at_level(logging.WARNING, "evorun"):
        trained = await train(tmp_path, learning, budget=make_budget(calls=calls), eval_samples=1, **settings)
    assert len(trained.policy.batches) == trained.policy.exported == steps
    assert [line["step"] for line in trained.records("steps")][-1] == steps
    made = Counter(ask.role for ask in trained.model.asked)
    assert made.total() <= calls
    assert sum(trained.cost().values()) == made.total()
    assert len([ask for ask in trained.model.of("evaluate") if ask.step == steps]) == 4


async def test_an_evaluation_may_wait_for_the_rollouts_of_the_next_step_to_begin(tmp_path: Path) -> None:
    begun = asyncio.Event()

    class Waits(Sampled):
        """Answers no evaluation of step 2 before a rollout of step 3 is asked for."""

        async def complete(self, key: str, request: Request, step: int) -> Reply:
            _, of_step, role, *_ = key.split("|")
            if (of_step, role) == ("3", "rollout"):
                begun.set()
            elif (of_step, role) == ("2", "evaluate"):
                await begun.wait()
            return await super().complete(key, request, step)

    beside = await train(tmp_path / "a", learning, model=Waits, eval_beside_rollouts=True, **ESPL)
    apart = await train(tmp_path / "b", learning, **ESPL)
    assert begun.is_set()
    assert sorted(beside.model.everything()) == sorted(apart.model.everything())
    assert beside.policy.batches == apart.policy.batches
    for name in ("rollouts", "ratings"):
        assert beside.records(name) == apart.records(name)
    answers = [[{**one, "cost": None} for one in run.records("steps")] for run in (beside, apart)]
    assert answers[0] == answers[1]


async def test_the_budget_pays_for_an_evaluation_before_what_is_played_beside_it(tmp_path: Path) -> None:
    # a step takes 12 rollouts and 9 reflections, an evaluation 4 calls: 4 + 2 * 21 + 4 + 21 + 4 for a third step
    for calls, steps in ((74, 2), (75, 3)):
        budget = make_budget(calls=calls)
        trained = await train(tmp_path / str(calls), learning, budget=budget, eval_beside_rollouts=True, **ESPL)
        assert len(trained.policy.batches) == trained.policy.exported == steps
        assert len([ask for ask in trained.model.of("evaluate") if ask.step == steps]) == 4


# --- scores ---


def episode(value: float | None, under: str) -> Episode:
    asked = Asked(problem(0), Prompt(messages=()), under)
    return Episode(asked, (), Response(text="", answer=None), Reward(value), 0, "")


def test_the_score_matrix_holds_means_by_prompt_and_problem() -> None:
    rewards = np.random.default_rng(0).random((4, 3, 5))  # B, M, N
    drawn = [DrawnPrompt(name, "") for name in "aba"]
    batch = Batch(1, drawn, [episode(float(x), drawn[i].id) for row in rewards for i in range(3) for x in row[i]], 5)
    assert score_matrix(batch) == pytest.approx(rewards.mean(axis=2).T)
    assert [[one.reward.value for one in episodes_of_prompt(batch, i)] for i in range(3)] == [
        pytest.approx(rewards[:, i].ravel().tolist()) for i in range(3)
    ]
    players, means = rank_players(batch)
    assert players == ["a", "b"]  # one that was drawn twice plays once, with all its rollouts
    assert means[0] == pytest.approx(rewards[:, [0, 2]].mean(axis=(1, 2)))
    assert means[1] == pytest.approx(rewards[:, 1].mean(axis=1))


def test_a_refused_request_counts_as_the_worst_of_its_problem() -> None:
    batch = Batch(
        1,
        [DrawnPrompt("a", ""), DrawnPrompt("b", "")],
        [episode(x, "") for x in (None, -1.0, -3.0, -2.0, *[None] * 4)],
        2,
    )
    assert score_matrix(batch).tolist() == [[-2.0, 0.0], [-2.5, 0.0]]


def test_what_the_chat_template_ended_is_no_loss_of_the_prompt_that_calls_tools() -> None:
    said = Reply(completions=(), prompt_tokens=1, seconds=0.0)
    turns = [(said, msgspec.structs.replace(said, error=error)) for error in ("no role tool", "the context takes 9")]
    ended, outgrew = (episode(None, "")._replace(turns=pair) for pair in turns)
    scored = [episode(1.0, ""), ended, episode(0.0, ""), outgrew, ended, ended, episode(1.0, ""), episode(0.5, "")]
    batch = Batch(1, [DrawnPrompt("a", ""), DrawnPrompt("b", "")], scored, 2)
    assert score_matrix(batch).tolist() == [[1.0, 0.5], [0.0, 0.75]]


# --- settings and texts ---

CHANGED: dict[str, Any] = {
    **{"evolve": False, "reflect_with": "policy", "eval_prompt": "latest", "loss": "bnpo", "prompts": 3, "window": 2},
    **{"selection": "uniform", "optimism": 0.0, "crossover_rate": 0.0, "selection_temperature": 9.0, "mu0": 20.0},
    **{"sigma0": 5.0, "beta": 2.0, "tau": 1.0, "draw_probability": 0.5, "tie": 0.5, "mutation_sd": 3.0},
    **{"mutation_sd_by": "root_of_squares", "local_edits": 1, "partial_edits": True, "most_edits": 1},
    **{"most_principles": 1, "principle_chars": 30, "rollout_chars": 3, "reflection_temperature": 0.4},
    **{"reflection_top_p": 0.6, "reflection_max_tokens": 7, "crossover_alone_by": 0.9, "principles_in": "user"},
    **{"edit_preamble": True, "preamble_chars": 30, "root_principles": ["Count twice."], "other_roots": [["Count."]]},
    **{"lessons_first": True},
    **{"ranking": "by_problem", "drift": "by_update", "fitness_sharing": True, "islands": 2, "migration_every": 1},
}
GIVEN: dict[str, dict[str, Any]] = {
    "selection_temperature": {"selection": "softmax"},
    "preamble_chars": {"edit_preamble": True},
    "drift": {"tau": 3.0},
    "migration_every": {"islands": 2, "steps": 6},
    "fitness_sharing": {"prompts": 3, "steps": 8, "problems_per_step": 5},
    **{key: {"steps": 3} for key in ("crossover_rate", "crossover_alone_by", "partial_edits")},
}
ELSEWHERE = {one.name for kind in (GrpoConfig, RefinementSettings) for one in dataclasses.fields(kind)} | {"transplant"}
"""Settings whose effects test_policy_gradient.py, test_rubrics.py and tests/test_prompt_studies.py know."""
OWN_FIELDS = {one.name for one in dataclasses.fields(EsplConfig)} - ELSEWHERE


def eventful(ask: Ask) -> str:
    """Enough going on for every setting to show: ties, several edits, a bad one now and then."""
    if ask.role in ("critique", "aggregation", "crossover"):
        more = [{"op": "remove", "id": "G99"}] if ask.step == 3 else []
        texts = [f"{ask.role} {n} in {ask.index} of step {ask.step}" for n in range(2)]
        return json.dumps({"analysis": "", "edits": [*({"op": "add", "text": text} for text in texts), *more]})
    return ("right", "wrong", "?")[crc32(f"{ask.index} {ask.step} {ask.instruction}".encode()) % 3]


async def effect(folder: Path, **config: Any) -> object:
    trained = await train(folder, eventful, **{**ESPL, "crossover_rate": 1.0, "group": 4, "steps": 2, **config})
    method: Any = trained.driver.method
    records = [(one["id"], one["text"], one["mean"], one["sd"]) for one in prompts(trained).values()]
    return (
        trained.model.everything(),
        records,
        trained.records("ratings"),
        method.active_roles,
        method.make_objective(folder),
    )


@pytest.mark.nightly
async def test_every_field_has_an_effect(tmp_path: Path) -> None:
    """On what is asked and of whom, on the population, or on what the trainer is told."""
    (tmp_path / "summary.md").write_text("Retell it: {{ rollout }}")
    changed = {**CHANGED, "operator_prompts": str(tmp_path)}
    assert set(changed) == OWN_FIELDS | {"loss"}
    before = await effect(tmp_path / "before")
    beside = {field: await effect(tmp_path / f"beside {field}", **given) for field, given in GIVEN.items()}
    for field, value in changed.items():
        changes = await effect(tmp_path / field, **GIVEN.get(field, {}), **{field: value})
        assert changes != beside.get(field, before), field


@pytest.mark.parametrize(
    "given",
    [
        ["a", " "],
        ["a", "[G2] a"],
        ["[G1] a\n\n[G2] b"],
        ["a\nG2: b"],
        [1],
        {"a": "b"},
        3,
        "none.json",
        "bad.json",
        "object.json",
        "empty.txt",
    ],
)
def test_root_principles_are_texts_that_differ(given: Any, tmp_path: Path) -> None:
    for name, text in {"bad.json": "[", "object.json": '{"a": "b"}', "empty.txt": "\n"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=r"^method\.root_principles: "):
        make_config("method", "espl", root_principles=str(tmp_path / given) if isinstance(given, str) else given)


def test_root_principles_come_from_a_list_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text('["[G1] one\\nline", "two"]')
    (tmp_path / "text.md").write_text("\n[G1] one\nline\r\n \r\n[G2]: two\n\n")
    for given in (["one\nline", "G2: two"], str(tmp_path / "list.json"), str(tmp_path / "text.md")):
        assert [*read_principles(given, "key")] == ["one\nline", "two"]
        assert read_roots(["a"], [given, []]) == [("a",), ("one\nline", "two"), ()]
    assert read_roots(None, None) == read_roots([], []) == [()]


@pytest.mark.parametrize(
    ("given", "key"), [("a", ""), ([["a"], "none.md"], "[1]"), ([["b"], ["b"]], "[1]"), ([[]], "[0]")]
)
def test_other_roots_are_lists_that_differ(given: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^method\.other_roots{re.escape(key)}: "):
        make_config("method", "espl", other_roots=given)


def test_a_window_holds_all_roots() -> None:
    with pytest.raises(ConfigError, match=r"^method\.window: expected .*2"):
        make_config("method", "espl_self_reflection", other_roots=[["a"]])


@pytest.mark.parametrize(
    ("field", "value"),
    [("prompts", 0), ("selection", "worst"), ("reflect_with", "judge"), ("eval_prompt", "root"), ("crossover_rate", 2)],
)
def test_values_out_of_range_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^method\.{field}: expected "):
        make_config("method", "espl", **{field: value})


def test_reflections_are_asked_of_the_reference_or_of_the_policy_before_the_steps_update() -> None:
    assert {make_method("espl").active_roles[role] for role in OPERATORS} == {("reference", 0)}
    assert {make_method("espl", reflect_with="policy").active_roles[role] for role in OPERATORS} == {("policy", 1)}


HOSTILE = ("", "\x00", "right", "{" * 500, "A" * 20_000, '{"edits": [{"op": "add", "text": "\\ud800 x"}]}', edits("x"))


@pytest.mark.parametrize("method", METHODS)
async def test_hostile_texts_are_data(tmp_path: Path, method: str) -> None:
    def script(ask: Ask) -> str | None:
        number = ask.index + 3 * ask.step
        if ask.role == "rollout" and ask.index % 3 == 0:
            return "right"
        return None if number % 11 == 0 else HOSTILE[number % len(HOSTILE)]

    trained = await train(tmp_path, script, method=method, steps=6)
    assert len(trained.records("training")) == 6
    assert sum(trained.cost().values()) == len(trained.model.asked)
    assert len(prompts(trained)) > 1


# --- whole runs, with a simulated policy ---

RUN = (
    *("method=espl", "method.steps=3", "method.problems_per_step=2", "method.group=3", "method.crossover_rate=0.5"),
    *("method.eval_every=2", "method.eval_samples=1", "task=arithmetic", "task.limit=2", "task.train_problems=6"),
)


@pytest.mark.sample(1)
@pytest.mark.parametrize("reflect_with", ["reference", "policy"])
def test_the_journal_names_the_weights_of_each_call(tmp_path: Path, reflect_with: str) -> None:
    """The base model reflects, or the policy before the step's update, as it made the rollouts."""
    run = simulated_run(tmp_path / "run", *RUN, f"method.reflect_with={reflect_with}")
    named: dict[tuple[str, int], set[str]] = {}
    for key, request, _, usage, _ in run.effects():
        if usage is not None:
            _, step, role, _, _ = key.rsplit("|", 4)
            named.setdefault((role, int(step)), set()).add(json.loads(request)["model"])
    assert all("grad_norm" in line["figures"] for line in run.records("training"))  # an update in every step
    base = run.json("manifest.json")["models"]["policy"]["id"]
    for (role, step), models in named.items():
        updates = step if role == "evaluate" else step - 1
        reference = role in OPERATORS and reflect_with == "reference"
        assert models == {base if reference else f"{base}@{updates}"}, (role, step)
    assert {role for role, _ in named} >= {"rollout", "evaluate", "summary", "critique", "aggregation"}


def test_a_run_that_breaks_down_in_a_reflection_of_the_policy_ends_as_if_it_had_not(tmp_path: Path) -> None:
    """Beside an update, whose weights a resumed run must not ask (figure 15)."""
    config = ("engine=simulated", "evorun.progress=off", *RUN, "method.reflect_with=policy")
    whole = carry_out(check(composed(*config)), tmp_path / "whole")
    before = [key for key in whole.calls() if key.split("|")[1] in "01"]
    rollouts = [key for key in whole.calls() if key.startswith("*|2|rollout|")]
    broken = carry_out(check(composed(*config)), tmp_path / "run", breaks_after=len(before) + len(rollouts) + 2)
    assert any(key.startswith("*|2|summary|") for key in broken.calls())
    assert not any(key.startswith("*|2|aggregation|") for key in broken.calls())
    resumed = carry_out(check(composed(*config)), tmp_path / "run")
    assert resumed.outcome == COMPLETED
    assert resumed.files() == whole.files()
