"""`evorun calibrate`: a simulated model's own settings come back from its runs, and only those that a run can tell."""

import shutil
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import yaml

from building import Run, composed, simulated_run
from evorun.cli import main
from evorun.cli.calibrating import calibrate_run
from evorun.cli.rejudging import rejudge
from evorun.errors import DataError
from evorun.reports import html
from evorun.runner.settings import check
from evorun.runs import calibration
from evorun.runs.calibration import Calibration, _fit_typical_mistake, _Problem, calibrate
from evorun.runs.terminal import Terminal
from evorun.simulation.skill import Skill
from evorun_process import evorun_here

TRUE = {
    **{"skill": 0.57, "spread": 0.5, "typical_mistake": 0.35, "judge_skill": 0.7, "judge_difficulty": 0.3},
    **{"judge_persistence": 0.4, "position_bias": 0.15, "tie_rate": 0.3},
}
MODEL = ("task=mathbench", "task.source=sample", "engine.mean_tokens=1")


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take few of the resamples, each of which is a fit: here the ends of intervals may be rough."""
    monkeypatch.setattr(calibration, "RESAMPLES", 8)


def of_duels(folder: Path, problems: int) -> Run:
    """Return a run of best-of-N: 16 responses to each problem, 48 duels in both orders."""
    return simulated_run(
        folder / "run",
        *("method=best_of_n", "method.samples=16", "method.rounds=2", "method.duel_choice=uniform"),
        f"task.limit={problems}",
        *(f"engine.{key}={value}" for key, value in TRUE.items()),
        *MODEL,
    )


def resampled(run: Run) -> Calibration:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "RESAMPLES", 40)
        return calibrate(run.path)


@pytest.fixture(name="duels", scope="module")
def _duels(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return of_duels(tmp_path_factory.mktemp("duels"), 24)


@pytest.fixture(name="found", scope="module")
def _found(duels: Run) -> Calibration:
    return resampled(duels)


@pytest.fixture(name="more_duels", scope="module")
def _more_duels(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return of_duels(tmp_path_factory.mktemp("more_duels"), 60)


@pytest.fixture(name="found_in_more", scope="module")
def _found_in_more(more_duels: Run) -> Calibration:
    return resampled(more_duels)


@pytest.mark.nightly
@pytest.mark.parametrize("of", ["found", "found_in_more"])
def test_each_setting_comes_back_within_what_its_n_allows(of: str, request: pytest.FixtureRequest) -> None:
    found: Calibration = request.getfixturevalue(of)
    assert {one.key for one in found.estimates} == {*TRUE}
    assert {*found.unknown} == {"improvement", "misleading"}  # no response of best-of-N is in view of others
    for one in found.estimates:
        assert one.ci95 is not None
        low, high = one.ci95
        # The interval's half width is two standard errors; of eight settings, none is off by more than three.
        assert abs(one.value - TRUE[one.key]) < 1.5 * (high - low) / 2 + 1e-3, one
        assert low <= one.value <= high


@pytest.mark.nightly
def test_intervals_are_as_wide_as_their_n_makes_them(found_in_more: Calibration) -> None:
    estimates = found_in_more.estimates
    width = {one.key: one.ci95[1] - one.ci95[0] for one in estimates if one.ci95}
    skill, spread = TRUE["skill"], TRUE["spread"]
    # Of a mean over 60 problems, each with its own probability and 16 tosses
    error = (skill * (1 - skill) * (spread + (1 - spread) / 16) / 60) ** 0.5
    assert width["skill"] == pytest.approx(2 * 1.96 * error, rel=0.35)
    counts = {one.key: (one.n, one.problems) for one in estimates}
    assert counts["skill"][1] == 60
    assert 900 < counts["skill"][0] <= 960
    assert counts["judge_skill"][0] + counts["tie_rate"][0] == counts["position_bias"][0] <= 60 * 2 * 24 * 2
    assert width["position_bias"] < 0.06
    assert width["judge_persistence"] < 0.35


@pytest.mark.nightly
def test_skills_by_problem_are_nearer_to_the_truth_than_shares_of_right_responses(
    more_duels: Run, found_in_more: Calibration
) -> None:
    truth = Skill(skill=TRUE["skill"], spread=TRUE["spread"])
    own = {problem: truth.own_chance(problem) for problem in found_in_more.skills}
    assert len(own) == 60
    shrunk = np.array([found_in_more.skills[problem] - own[problem] for problem in own])
    graded: dict[str, list[bool]] = {problem: [] for problem in own}
    for one in more_duels.records("candidates"):
        if one["answer"] is not None:
            graded[one["problem"]].append(one["correct"])
    plain = np.array([np.mean(graded[problem]) - own[problem] for problem in own])
    assert np.square(shrunk).mean() < np.square(plain).mean()
    # The variance of a Beta posterior after 16 tosses, on average over problems: m (1 - m) (1 - s) s / (s (16 - 1) + 1)
    skill, spread = TRUE["skill"], TRUE["spread"]
    expected = skill * (1 - skill) * (1 - spread) * spread / (spread * 15 + 1)
    assert np.square(shrunk).mean() == pytest.approx(expected, rel=0.6)


@pytest.mark.nightly
@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize(("improvement", "misleading"), [(0.3, 0.2), (0.0, 0.0)])
def test_what_responses_in_view_do_comes_back(improvement: float, misleading: float, tmp_path: Path) -> None:
    run = simulated_run(
        tmp_path / "run",
        *("method=duel_evolve", "method.generations=3", "method.children=24", "method.duels=4", "task.limit=40"),
        *("engine.skill=0.5", "engine.spread=0.2", f"engine.improvement={improvement}"),
        f"engine.misleading={misleading}",
        *MODEL,
    )
    found = {one.key: one for one in calibrate(run.path).estimates}
    for key, true in (("improvement", improvement), ("misleading", misleading)):
        assert found[key].ci95 is not None
        low, high = found[key].ci95
        assert high - low < 0.2
        assert abs(found[key].value - true) < 1.5 * (high - low) / 2 + 0.01, found[key]


@pytest.mark.parametrize(
    ("counts", "kinds"),
    [
        ((3, 1, 1), 3 + 2 * 1 / (2 * (0 + 1))),  # Chao's estimate of the kinds: two were seen once, none twice
        ((5, 2, 1, 1), 4 + 2 * 1 / (2 * (1 + 1))),
        ((6, 2, 2), 3.0),
    ],
)
def test_the_typical_mistake_makes_wrong_answers_coincide_as_often_as_they_did(
    counts: tuple[int, ...], kinds: float
) -> None:
    wrong = Counter(dict(zip("abcd", counts, strict=False)))
    share = _fit_typical_mistake([_Problem(wrong=wrong)])["typical_mistake"]
    pairs = list(combinations(wrong.elements(), 2))
    coinciding = sum(one == other for one, other in pairs) / len(pairs)
    assert share > 1 / kinds
    assert share**2 + (1 - share) ** 2 / (kinds - 1) == pytest.approx(coinciding)


@pytest.mark.usefixtures("few_resamples")
def test_a_run_without_duels_tells_of_skill_and_mistakes_alone(tmp_path: Path) -> None:
    words = ("method=self_consistency", "method.samples=4", "task.limit=12", "engine.skill=0.5", *MODEL)
    found = calibrate(simulated_run(tmp_path / "run", *words).path)
    assert {one.key for one in found.estimates} == {"skill", "spread", "typical_mistake"}
    assert {*found.unknown} == {*TRUE, "improvement", "misleading"} - {"skill", "spread", "typical_mistake"}


@pytest.mark.usefixtures("few_resamples")
def test_the_recorded_run_of_a_real_model_tells_what_its_few_problems_can() -> None:
    found = calibrate(Path(__file__).parent / "recordings" / "smollm2_mathbench")
    of = {one.key: one for one in found.estimates}
    assert of["position_bias"].value > 0.8  # it names the response shown first nearly always
    # One problem has a right response and a wrong one: no interval over problems, and nothing that persists.
    assert (of["judge_skill"].problems, of["judge_skill"].ci95) == (1, None)
    assert {"judge_persistence", "judge_difficulty"} <= {*found.unknown}


def test_single_responses_tell_no_spread_and_no_skills_by_problem(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", "method=zero_shot", "task.limit=20", "engine.skill=0.5", *MODEL)
    found = calibrate(run.path)
    right = [one["correct"] for one in run.records("predictions") if one["answer"] is not None]
    assert [(one.key, one.value, one.n, one.problems) for one in found.estimates] == [
        ("skill", np.mean(right), len(right), len(right))
    ]
    assert not found.skills
    assert {"spread", "typical_mistake", "judge_skill"} <= {*found.unknown}


def test_a_run_without_right_and_wrong_or_without_responses_is_refused(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", "method=zero_shot", "task=billsum", "task.source=sample", "task.limit=1")
    with pytest.raises(DataError, match="expected a run of a task with right and wrong answers"):
        calibrate(run.path)
    other = simulated_run(tmp_path / "other", "method=zero_shot", "task.limit=1", *MODEL)
    (other.path / "candidates.jsonl").unlink()
    with pytest.raises(DataError, match="expected graded responses from scratch, or duels"):
        calibrate(other.path)


@pytest.mark.usefixtures("few_resamples")
def test_the_verb_writes_an_engine_for_simulated_runs(
    duels: Run, found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    words = ["calibrate", str(duels.path), "output=fitted/engine/like_it.yaml"]
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr().out
    assert end.value.code == 0
    assert "to use it: evorun --config-dir fitted engine=like_it ..." in said
    for one in found.estimates:
        assert any(
            one.key in line and f"{one.value:.3f}" in line and f"{one.n:,} " in line for line in said.splitlines()
        )
    composes = ("--config-dir", "fitted", "engine=like_it", "method=zero_shot", *MODEL[:2], "--cfg", "job")
    done = evorun_here(*composes, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for one in found.estimates:
        assert f"  {one.key}: {float(f'{one.value:.4f}')}" in done.stdout
    problem, chance = next(iter(found.skills.items()))
    assert f"    {problem}: {float(f'{chance:.4f}')}" in done.stdout
    with pytest.raises(SystemExit):
        main(words)
    assert "output: fitted/engine/like_it.yaml exists; overwrite=true replaces it" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        main([*words, "overwrite=true"])
    assert end.value.code == 0
    with pytest.raises(SystemExit):
        main([*words[:2], f"output={duels.path}/engine/x.yaml"])
    assert "output: expected a place outside run directories" in capsys.readouterr().err


@pytest.mark.nightly  # test_rejudge.py judges again, the others calibrate
@pytest.mark.usefixtures("few_resamples")
def test_a_judge_that_only_judged_again_comes_back(
    more_duels: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers stay those of the run, and the verdicts are the transplanted judge's."""
    monkeypatch.setattr(html, "write_report", lambda run: None)  # which takes seconds
    other = ("judge=qwen2_5_7b", "judge_engine=simulated", "judge_engine.judge_skill=0.95", "judge_engine.tie_rate=0.1")
    run = shutil.copytree(more_duels.path, tmp_path / "run")
    assert rejudge([str(run), *other, "judge_engine.judge_persistence=0"], Terminal(quiet=True)) == 0
    [folder] = run.glob("rejudge/*")
    output = tmp_path / "engine" / "strong.yaml"
    assert calibrate_run([str(folder), f"output={output}"], Terminal(quiet=True)) == 0
    engine = yaml.safe_load(output.read_text())
    assert engine["skill"] == pytest.approx(0.57, abs=0.1)
    assert engine["judge_skill"] == pytest.approx(0.95, abs=0.05)
    assert engine["tie_rate"] == pytest.approx(0.1, abs=0.05)


def test_a_problems_given_skill_is_its_own() -> None:
    words = ("engine=simulated", "method=zero_shot", "engine.skill=0.3", "+engine.skills.p7=0.9", "task.source=sample")
    engine = check(composed(*words)).engine
    assert isinstance(engine, Skill)
    assert (engine.chance("p7", ()), engine.chance("p8", ())) == (0.9, pytest.approx(0.3, abs=0.35))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected: evorun calibrate RUN_DIR"),
        (["run", "output=engine.yaml"], "output: expected a file NAME.yaml in a folder named engine, got engine.yaml"),
        (["run", "output=engine/one.json"], "output: expected a file NAME.yaml in a folder named engine"),
        (["one", "two"], "expected one run to calibrate from, got 2; give one"),
        (["nowhere"], "nowhere is not a run directory"),
    ],
)
def test_a_wrong_command_line_says_what_is_expected(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["calibrate", *words])
    assert end.value.code == 1
    assert said in " ".join(capsys.readouterr().err.split())
