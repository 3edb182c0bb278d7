"""`evorun rejudge`: recorded duels, rewards and grades, given again by somebody else."""

import json
import math
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import spearmanr

from building import simulated_run
from evorun.cli.rejudging import rejudge, resume_rejudge
from evorun.cli.verbs import run_verb
from evorun.errors import ConfigError, DataError, EngineError
from evorun.reports import html
from evorun.reports.rejudged import load_judges, load_rejudgings
from evorun.runs.formats import MINUS
from evorun.runs.journal_reader import read_journal
from evorun.runs.studies import load_figures, load_rejudge
from evorun.runs.terminal import Terminal
from evorun_process import start
from journals import wait_for_effects
from warm_process import no_figures

DUELS = (
    *("method=duel_evolve", "task=mathbench", "task.source=sample", "task.limit=4", "method.generations=2"),
    *("method.initial_candidates=4", "method.children=3", "method.duels=4"),
)
REWARDS = (
    *("method=mpo", "task=arithmetic", "engine.mean_tokens=5", "task.test_problems=2", "method.steps=3"),
    *("method.problems_per_step=4", "method.group=2", "method.refine_every=1", "method.refine_samples=2"),
    *("method.eval_every=3", "method.score_attempts=2"),
)
WEAK = ("judge=qwen2_5_7b", "judge_engine=simulated", "judge_engine.judge_skill=0.2")


@pytest.fixture(scope="module", name="duels")
def _duels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_run(tmp_path_factory.mktemp("duels") / "run", *DUELS).path


@pytest.fixture(scope="module", name="ratings")
def _ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = ("method.samples=5", "method.comparisons=9", "method.orders=2", "task.limit=4")
    words = ("method=v1_infer", "task=mathbench", "task.source=sample", *sizes)
    return simulated_run(tmp_path_factory.mktemp("ratings") / "run", *words).path


@pytest.fixture(scope="module", name="rewards")
def _rewards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_run(tmp_path_factory.mktemp("rewards") / "run", *REWARDS).path


@pytest.fixture(autouse=True)
def _no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "write_report", lambda run: None)  # which takes seconds


def study(run: Path, *words: str) -> Path:
    """Carry out a rejudging and return its folder."""
    before = {folder: (folder / "rejudge.json").stat().st_mtime_ns for folder in run.glob("rejudge/*")}
    assert rejudge([str(run), *words], Terminal(quiet=True)) == 0
    [folder] = [one for one in run.glob("rejudge/*") if before.get(one) != (one / "rejudge.json").stat().st_mtime_ns]
    return folder


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def row(folder: Path, group: str) -> Any:
    return next(figure for figure in load_figures(folder) if figure.group == group)


def keys(folder: Path) -> list[str]:
    return [effect.key for effect in read_journal(folder / "journal.sqlite")]


# --- duels ---


@pytest.mark.nightly
def test_a_run_that_rates_pairs_has_them_rated_again(ratings: Path) -> None:
    folder = study(ratings, "judge=policy")
    assert records(folder, "comparisons") == records(ratings, "comparisons")
    assert row(folder, "accuracy: the run's choices").agreement.value == 1
    again = records(study(ratings, *WEAK), "comparisons")
    assert all(duel["ratings"] for duel in again)
    assert again != records(ratings, "comparisons")


def test_the_recorded_judge_gives_the_recorded_verdicts_ratings_and_choices(duels: Path) -> None:
    folder = study(duels, "judge=policy")
    assert records(folder, "comparisons") == records(duels, "comparisons")
    recorded = {(one["problem"], one["id"]): one["mean"] for one in records(duels, "candidates")}
    rated = records(folder, "ratings")
    assert {(one["problem"], one["candidate"]) for one in rated} == {
        key for key, mean in recorded.items() if mean is not None
    }
    for one in rated:
        assert one["mean"] == pytest.approx(recorded[one["problem"], one["candidate"]], abs=1e-7)
    assert all(choice["recorded"] == choice["now"] for choice in records(folder, "choices"))
    assert row(folder, "all duels").agreement.value == 1.0
    assert row(folder, "accuracy: the run's choices").difference.value == 0.0


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "method", ["method=best_of_n method.samples=4 method.rounds=2", "method=feedback_descent method.generations=3"]
)
def test_other_methods_with_duels_have_them_judged_as_they_did(method: str, tmp_path: Path) -> None:
    words = ("task=mathbench", "task.source=sample", "task.limit=1")
    run = simulated_run(tmp_path / "run", *method.split(), *words).path
    folder = study(run, "judge=policy")
    assert records(folder, "comparisons") == records(run, "comparisons")
    assert row(folder, "accuracy: both by refitted ratings").agreement.value == 1.0


def test_only_judgments_are_paid_for(duels: Path) -> None:
    """The run's own calls have the same keys as the study's, so that no verdict depends on where it was asked for."""
    folder = study(duels, *WEAK)
    asked = keys(folder)
    assert {key.split("|")[2] for key in asked} == {"judge"}
    assert sorted(asked) == sorted(key for key in keys(duels) if key.split("|")[2] == "judge")
    cost = json.loads((folder / "cost.json").read_text())
    assert cost["calls"] == len(asked)
    manifest = load_rejudge(folder)
    assert (manifest.kind, manifest.changes, manifest.ended_early) == (
        "duels",
        ["judge=qwen2_5_7b", "judge_engine.judge_skill=0.2"],
        None,
    )


def test_agreement_is_counted_over_what_both_judges_decided(duels: Path) -> None:
    folder = study(duels, *WEAK)
    before, after = records(duels, "comparisons"), records(folder, "comparisons")
    both = [(a["outcome"], b["outcome"]) for a, b in zip(before, after, strict=True) if a["outcome"] and b["outcome"]]
    figure = row(folder, "all duels")
    assert figure.n == len(before)
    assert figure.agreement.n == len(both)
    assert 0 < figure.agreement.value < 1
    assert figure.agreement.value == pytest.approx(sum(a == b for a, b in both) / len(both))
    assert figure.now.value == pytest.approx(sum(one["outcome"] is not None for one in after) / len(after))
    for order, group in enumerate(("first candidate shown as A", "first candidate shown as B")):
        letters = [(a["verdicts"][order], b["verdicts"][order]) for a, b in zip(before, after, strict=True)]
        decided = [(a, b) for a, b in letters if a in "AB" and b in "AB"]
        assert row(folder, group).agreement.value == pytest.approx(sum(a == b for a, b in decided) / len(decided))
    said = [verdict for one in after for verdict in one["verdicts"] if verdict in "AB"]
    assert row(folder, "verdicts for the text shown as A").now.value == pytest.approx(said.count("A") / len(said))
    texts = {(one["problem"], one["id"]): one["text"] for one in records(duels, "candidates")}
    longer = [
        (len(texts[one["problem"], one["first"]]) > len(texts[one["problem"], one["second"]]))
        == (one["outcome"] == "first")
        for one in after
        if one["outcome"] and len(texts[one["problem"], one["first"]]) != len(texts[one["problem"], one["second"]])
    ]
    assert row(folder, "duels won by the longer text").now.value == pytest.approx(sum(longer) / len(longer))
    parts = [figure for figure in load_figures(folder) if figure.group.startswith("lengths")]
    assert sum(figure.n for figure in parts) == len(before)
    assert sum(figure.n for figure in load_figures(folder) if figure.by == "step") == len(before)


def test_each_judge_is_compared_with_the_grades_and_split_by_difficulty(duels: Path) -> None:
    folder = study(duels, *WEAK)
    correct = {(one["problem"], one["id"]): one["correct"] for one in records(duels, "candidates")}
    pools = defaultdict[str, list[bool]](list)
    for (problem, _), right in correct.items():
        pools[problem].append(right)
    figure = row(folder, "duels won by the better candidate")
    for found, shown in (
        (records(duels, "comparisons"), figure.recorded),
        (records(folder, "comparisons"), figure.now),
    ):
        right = [
            correct[one["problem"], one[one["outcome"]]]
            for one in found
            if one["outcome"] and correct[one["problem"], one["first"]] != correct[one["problem"], one["second"]]
        ]
        assert (shown.value, shown.n) == (pytest.approx(sum(right) / len(right)), len(right))
    of_group = Counter[str]()
    for one in records(duels, "comparisons"):
        share = sum(pools[one["problem"]]) / len(pools[one["problem"]])
        of_group[
            "less than a third" if share <= 1 / 3 else "a third to two" if share <= 2 / 3 else "more than two"
        ] += 1
    by_difficulty = {figure.group: figure.n for figure in load_figures(folder) if figure.by == "difficulty"}
    assert len(by_difficulty) == len(of_group)
    for words, n in of_group.items():
        [found_n] = [count for group, count in by_difficulty.items() if words in group]
        assert found_n == n


def test_judges_of_the_same_duels_stand_side_by_side(duels: Path, tmp_path: Path) -> None:
    run = shutil.copytree(duels, tmp_path / "run", ignore=shutil.ignore_patterns("rejudge"))
    weak = study(run, *WEAK)
    assert load_judges(run) == []
    strong = study(run, *WEAK[:2], "judge_engine.judge_skill=0.95")
    [section] = load_judges(run)
    table, pairs = section.tables
    by_judge = {line[0]: line for line in table.rows}
    assert next(iter(by_judge)) == "as recorded"
    for skill, folder in ((0.2, weak), (0.95, strong)):
        share = row(folder, "duels won by the better candidate").now.value
        assert by_judge[f"judge=qwen2_5_7b, judge_engine.judge_skill={skill}"][3] == f"{100 * share:.1f} %"
    both = [
        (one["outcome"], other["outcome"])
        for one, other in zip(records(weak, "comparisons"), records(strong, "comparisons"), strict=True)
        if one["outcome"] and other["outcome"]
    ]
    assert pairs.rows[-1][3] == len(both)
    assert pairs.rows[-1][2] == f"{100 * sum(one == other for one, other in both) / len(both):.1f} %"
    assert load_rejudgings(run)[-1] == section


def test_ratings_are_the_mode_of_bradley_terry_and_the_best_one_is_the_choice(duels: Path) -> None:
    folder = study(duels, *WEAK)
    scores = {(one["problem"], one["id"]): one["correct"] for one in records(duels, "candidates")}
    by_problem: dict[str, dict[str, float]] = defaultdict(dict)
    for one in records(folder, "ratings"):
        by_problem[one["problem"]][one["candidate"]] = one["mean"]
    for choice in records(folder, "choices"):
        means = by_problem[choice["problem"]]
        names = list(means)
        won = [
            (one["first"], one["second"]) if one["outcome"] == "first" else (one["second"], one["first"])
            for one in records(folder, "comparisons")
            if one["problem"] == choice["problem"] and one["outcome"]
        ]

        def loss(x: np.ndarray, won: list[tuple[str, str]] = won, names: list[str] = names) -> float:
            return float(sum(math.log1p(math.exp(x[names.index(b)] - x[names.index(a)])) for a, b in won) + x @ x / 2)

        assert list(means.values()) == pytest.approx(minimize(loss, np.zeros(len(names)), tol=1e-9).x, abs=1e-4)
        assert means[choice["now"]] == max(means.values())
        assert choice["score_now"] == scores[choice["problem"], choice["now"]]
    gain = [one["score_now"] - one["recorded_score"] for one in records(folder, "choices")]
    assert row(folder, "accuracy: the run's choices").difference.value == pytest.approx(sum(gain) / len(gain))


@pytest.mark.nightly
def test_a_budget_ends_a_study_and_a_larger_one_goes_on(duels: Path) -> None:
    words = ("judge=qwen2_5_7b", "judge_engine=simulated", "judge_engine.judge_skill=0.4")
    first = study(duels, *words, "budget.calls=9")
    assert json.loads((first / "cost.json").read_text())["calls"] == 8  # whole duels in both orders
    assert "left" in str(load_rejudge(first).ended_early)
    paid = {effect.key: effect for effect in read_journal(first / "journal.sqlite")}
    assert study(duels, *words) == first
    assert load_rejudge(first).ended_early is None
    again = {effect.key: effect for effect in read_journal(first / "journal.sqlite")}
    assert {key: again[key] for key in paid} == paid
    assert len(records(first, "comparisons")) == len(records(duels, "comparisons"))


@pytest.mark.nightly
def test_a_budget_is_spent_on_the_problems_in_turn(duels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """300 duels of 2 problems would say as little as 2 problems do."""
    words = ("judge=qwen2_5_7b", "judge_engine=simulated", "judge_engine.judge_skill=0.3")
    folder = study(duels, *words, "budget.calls=26")
    asked = [one["problem"] for one in records(folder, "comparisons")]
    assert Counter(Counter(asked).values()) == {3: 3, 4: 1}
    figure = row(folder, "all duels")
    assert (figure.n, figure.problems) == (13, 4)
    assert figure.now.ci95 is not None
    assert run_verb("report", [str(folder)]) == 0
    cells = next(line.split() for line in capsys.readouterr().out.splitlines() if "all duels" in line)
    assert cells[2:4] == ["13", "4"]
    few = study(duels, *words, "budget.calls=6")
    assert (few, row(few, "all duels").problems, row(few, "all duels").now.ci95) == (folder, 3, None)


@pytest.mark.nightly
def test_the_same_simulated_judge_by_another_name_is_said_to_be_the_same(
    duels: Path, rewards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study(duels, "judge=qwen2_5_7b", "judge_engine=simulated")
    assert row(folder, "all duels").agreement.value == 1.0
    assert run_verb("report", [str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "All verdicts are the recorded ones, since a simulated judge is the same whatever its name" in said
    assert "judge_engine.judge_skill=" in said
    assert load_rejudge(study(duels, *WEAK)).remark is None
    same = ("reward=qwen2_5_7b", "reward_engine=simulated", "reward_engine.mean_tokens=5")
    assert str(load_rejudge(study(rewards, *same)).remark).startswith("All rewards are the recorded ones")


def test_a_panel_decides_by_majority(duels: Path) -> None:
    folder = study(duels, "judge=[qwen2_5_7b,policy]", "judge_engine=simulated", "budget.calls=8")
    assert {key.split("|")[2] for key in keys(folder)} == {"judge.0", "judge.1"}
    assert all(len(one["votes"][0]) == 2 for one in records(folder, "comparisons"))


@pytest.mark.nightly  # a budget ends one, and it goes on, by day
def test_a_killed_study_is_resumed_and_equals_an_undisturbed_one(duels: Path, tmp_path: Path) -> None:
    shutil.copytree(duels, tmp_path / "run", ignore=shutil.ignore_patterns("rejudge"))
    slow = (*WEAK, "judge_engine.judge_skill=0.3", "judge_engine.slots=1")
    process = start("rejudge", "run", *slow, "judge_engine.seconds_per_token=0.002", cwd=tmp_path)
    while not (found := list((tmp_path / "run").glob("rejudge/*/journal.sqlite"))):
        assert process.poll() is None
    folder = found[0].parent
    wait_for_effects(folder, 3, process)
    process.kill()
    process.wait()
    assert load_rejudge(folder).status == "running"
    assert resume_rejudge(folder, ["judge_engine.seconds_per_token=0"], Terminal(quiet=True), trust=False) == 0
    assert load_rejudge(folder).status == "completed"
    undisturbed = study(duels, *slow)
    for name in ("comparisons.jsonl", "ratings.jsonl", "choices.jsonl", "figures.json"):
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes()


def test_a_study_is_reported_and_resumed_without_new_calls(duels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = study(duels, *WEAK)
    paid = list(read_journal(folder / "journal.sqlite"))
    assert run_verb("report", [str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "duels again: judge=qwen2_5_7b" in printed
    assert "Simulated: no language model" in printed
    cells = next(line.split() for line in printed.splitlines() if "all duels" in line)
    figure = row(folder, "all duels")
    assert cells[2] == str(figure.n)
    assert cells[-1] == str(figure.agreement.n) != str(figure.n)  # what the agreement is a share of
    assert f"{100 * figure.agreement.value:.1f} % (" in " ".join(cells)
    gain = row(folder, "accuracy: the run's choices").difference.value
    assert f"{100 * gain:+.1f} pp".replace("+0.0", "0.0").replace("-", MINUS) in printed
    assert resume_rejudge(folder, [], Terminal(quiet=True), trust=False) == 0
    assert list(read_journal(folder / "journal.sqlite")) == paid
    with no_figures():
        page = html.render_report(duels)
    assert "Judged again" in page
    assert "verdicts for the text shown as A" in page
    assert "Simulated: no language model gave these opinions" in page


@pytest.mark.nightly
def test_two_rejudgings_are_exported_as_two_tables(duels: Path, tmp_path: Path) -> None:
    shutil.copytree(duels, tmp_path / "run", ignore=shutil.ignore_patterns("rejudge"))
    folders = [study(tmp_path / "run", *WEAK), study(tmp_path / "run", "judge=oracle")]
    names = {table.name for section in load_rejudgings(tmp_path / "run") for table in section.tables}
    of_each = {f"rejudged_{part}_{folder.name}" for part in ("duels", "choices") for folder in folders}
    assert names == {*of_each, "judges", "judges_agreement"}


# --- rewards ---


def test_the_runs_own_rubrics_give_the_recorded_rewards(rewards: Path) -> None:
    folder = study(rewards, "reward=policy")
    scored = records(folder, "rewards")
    recorded = [one for one in records(rewards, "rollouts") if "raw" in one]
    assert len({one["rubric"] for one in recorded}) > 1
    assert [one["now"] for one in scored] == [one["raw"] / one["maximum"] for one in recorded]
    assert {key.split("|")[2] for key in keys(folder)} == {"score"}
    assert row(folder, "all rollouts").difference.value == 0.0


def test_another_rubric_is_compared_by_rank_within_steps(rewards: Path, tmp_path: Path) -> None:
    rubric = tmp_path / "mine.md"
    rubric.write_text("maximum: 8\nIs it brief?")
    folder = study(rewards, f"rubric={rubric}", "reward=qwen2_5_7b", "reward_engine=simulated")
    assert load_rejudge(folder).settings["rubric"] == str(rubric)
    by_step: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for one in records(folder, "rewards"):
        if one["now"] is not None:
            by_step[one["step"]].append((one["recorded"], one["now"]))
    asked = next(effect.request for effect in read_journal(folder / "journal.sqlite"))
    assert b"Is it brief?" in asked
    correlations = []
    for step, pairs in by_step.items():
        expected = spearmanr(*zip(*pairs, strict=True)).statistic
        found = row(folder, f"step {step}")
        assert found.agreement.value == pytest.approx(expected)
        assert found.n == len(pairs)
        assert found.now.value == pytest.approx(np.mean([now for _, now in pairs]))
        correlations.append(expected)
    assert row(folder, "all rollouts").agreement.value == pytest.approx(np.mean(correlations))


# --- grades ---


def test_the_same_grader_gives_the_recorded_grades_and_pays_nothing(duels: Path) -> None:
    folder = study(duels, "task.draw_seed=0")
    recorded = {(one["problem"], one["id"]): one["correct"] for one in records(duels, "candidates")}
    graded = records(folder, "grades")
    assert {(one["problem"], one["candidate"]): one["correct"] for one in graded} == recorded
    assert sum(one["final"] for one in graded) == 4
    assert row(folder, "accuracy").agreement.value == 1.0
    assert keys(folder) == []


def test_corrected_answers_change_the_final_score(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    questions = [{"id": name, "question": f"{name}?", "answer": "1"} for name in "abcd"]
    data.write_text("".join(json.dumps(one) + "\n" for one in questions))
    words = ("method=zero_shot", "task=rows", f"task.data={data}", "task.id=id", "engine.skill=0.99")
    run = simulated_run(tmp_path / "run", *words).path
    before = {one["problem"]: one["correct"] for one in records(run, "predictions")}
    wrong = next(name for name, correct in before.items() if correct)
    corrected = [one | ({"answer": "7"} if one["id"] == wrong else {}) for one in questions]
    data.write_text("".join(json.dumps(one) + "\n" for one in corrected))
    folder = study(run, f"task.data={data}", "task.grader=number")
    found = row(folder, "accuracy")
    assert found.recorded.value == sum(before.values()) / 4
    assert found.now.value == found.recorded.value - 0.25
    assert (found.difference.value, found.agreement.value) == (-0.25, 0.75)
    data.write_text("".join(json.dumps(one | {"question": "Another?"}) + "\n" for one in questions))
    with pytest.raises(DataError, match="as the run saw it"):
        study(run, "task.grader=number")


def test_another_gold_judge_gives_opinions_within_a_budget(tmp_path: Path) -> None:
    words = ("method=zero_shot", "task=essay", "task.source=sample", "task.limit=3")
    run = simulated_run(tmp_path / "run", *words).path
    folder = study(run, "gold=qwen2_5_7b", "gold_engine=simulated", "budget.calls=7")
    assert len(records(folder, "grades")) == 2  # a third might take three opinions
    assert {key.split("|")[2] for key in keys(folder)} == {"gold"}
    assert json.loads((folder / "cost.json").read_text())["calls"] == len(keys(folder))


def test_the_price_of_a_panel_is_that_of_prompts_as_recorded_and_of_whole_completions(
    duels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(duels.glob("rejudge/*"))
    words = ("judge=[gpt_4o,gpt_4o_mini]", "judge_engine=openai")
    cost = json.loads((duels / "results.json").read_text())["cost"]["judge"]
    asked = sum(len(one["verdicts"]) for one in records(duels, "comparisons"))
    prompt = math.ceil(asked * cost["prompt_tokens"] / cost["calls"])
    # dollars for a million tokens, by the vendor's list; a verdict has at most 192 tokens
    price = (prompt * (2.5 + 0.15) + 192 * asked * (10 + 0.6)) / 1e6
    with pytest.raises(ConfigError, match=rf"at most \$0\.01, these opinions may cost \${price:.2f}; raise it"):
        rejudge([str(duels), *words, "--max-price=0.01"], Terminal(quiet=True))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(EngineError, match="OPENAI_API_KEY"):  # within its price, it begins
        rejudge([str(duels), *words, f"--max-price={price + 0.01}"], Terminal(quiet=True))
    for folder in set(duels.glob("rejudge/*")) - before:
        shutil.rmtree(folder)


# --- refusals ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("budget.calls=9",), "expected: evorun rejudge"),
        (("judge=oracle", "task.grader=math"), "expected: evorun rejudge"),
        (("judge=oracle", "method.duels=9"), "method.duels: cannot change on a rejudging"),
        (("judge=oracle", "budget.calls=0"), "budget.calls: expected a number"),
        (("judge=nobody",), "judge=nobody: unknown judge"),
        (("rubric=initial",), "learns from no problems"),
        (("task.limit=1",), "lacks it"),
    ],
)
def test_what_cannot_be_judged_again_is_refused_in_one_line(words: tuple[str, ...], said: str, duels: Path) -> None:
    before = set(duels.glob("rejudge/*"))
    with pytest.raises((ConfigError, DataError), match=said):
        rejudge([str(duels), *words], Terminal(quiet=True))
    assert set(duels.glob("rejudge/*")) == before


def test_a_run_without_duels_is_refused(rewards: Path) -> None:
    with pytest.raises(ConfigError, match="expected a run with duels"):
        rejudge([str(rewards), "judge=oracle"], Terminal(quiet=True))


def test_somebody_elses_run_is_not_rejudged_unasked(duels: Path, tmp_path: Path) -> None:
    shutil.copytree(duels, tmp_path / "theirs", ignore=shutil.ignore_patterns("rejudge"))
    manifest = json.loads((duels / "manifest.json").read_text())
    manifest["config"]["seed"] = 5
    (tmp_path / "theirs" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="--trust"):
        rejudge([str(tmp_path / "theirs"), "judge=oracle"], Terminal(quiet=True))
    assert not list((tmp_path / "theirs").glob("rejudge/*"))
