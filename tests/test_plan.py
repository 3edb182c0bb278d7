"""`evorun plan`: its calls against the journal of a run of that size, its price against arithmetic with fractions."""

import itertools
import json
import math
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from building import simulated_run, task_config
from evorun.cli import planning
from evorun.cli.compose import register
from evorun.cli.composed_jobs import compose_jobs
from evorun.errors import ConfigError, DataError, EngineError
from evorun.methods.context import RunContext
from evorun.methods.learning.parts import Batch, FixedPrompt, PromptSource
from evorun.methods.learning.policy_gradient import Rloo
from evorun.models.base import Sampling
from evorun.models.config import ModelConfig
from evorun.models.devices import read_inventory
from evorun.reports.text import dollars
from evorun.rollouts.calls import Role
from evorun.runner import planned_differences, plans, registry, trials
from evorun.runner.estimates import estimate
from evorun.runner.memory import estimate_memory
from evorun.runner.planned_roles import extrapolate_prompt
from evorun.runner.plans import make_plan
from evorun.runner.settings import check
from evorun.runner.stages import name_stage, run_digest
from evorun.runner.student import teacher_composition
from evorun.runner.trials import Asked, Trial
from evorun.runs.call_keys import read_role
from evorun.runs.crossed import crossed_mean
from evorun.runs.directory import identity
from evorun.runs.statistics import estimate_spread, smallest_difference, worst_spread
from evorun.runs.terminal import Terminal
from evorun.testing.runs import carry_out

SMALL = ("task=mathbench", "task.source=sample", "task.limit=3")
API = ("engine=openai", "model=gpt_4o")

_TRIALS: dict[str, Trial | None] = {}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _brief_trials(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Carry out each trial once for all tests, of a tenth of the calls but for tests that ask for `long_trials`."""
    most = trials.MOST_CALLS if "long_trials" in request.fixturenames else trials.MOST_CALLS // 10
    monkeypatch.setattr(trials, "MOST_CALLS", most)

    def try_out_once(config: Mapping[str, Any], *more: Any, **named: Any) -> Trial | None:
        asked = {key: value for key, value in config.items() if key not in ("seed", "model", "engine")}
        known = repr((asked, more, named, most))
        if known not in _TRIALS:
            _TRIALS[known] = trials.try_out(config, *more, **named)
        return _TRIALS[known]

    monkeypatch.setattr(plans, "try_out", try_out_once)


@pytest.fixture
def no_trials(_brief_trials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Carry out no trial, for tests that read nothing of one: calls are those of formulas."""
    monkeypatch.setattr(plans, "try_out", lambda *_, **__: None)


@pytest.fixture
def long_trials() -> None:
    """Measure prompts on as many calls as a plan does, for tests that hold them against those of a run."""


def journal_calls(run: Any) -> Counter[str]:
    return Counter(key.split("|")[2] for key, _, _, usage, _ in run.effects() if usage)


@pytest.mark.usefixtures("long_trials")
def test_calls_of_a_formula_are_those_in_the_journal_of_that_run(tmp_path: Path) -> None:
    words = ("method=duel_evolve", "method.generations=2", "method.retries=0", *SMALL)
    (arm,) = make_plan(compose_jobs([*words, *API]), tmp_path).arms
    run = simulated_run(tmp_path / "run", *words)
    assert {role.role: role.calls for role in arm.roles} == journal_calls(run)
    assert {role.calls_by for role in arm.roles} == {"formula"}
    for role in arm.roles:
        spent = run.json("results.json")["cost"][role.role]
        assert role.prompt_tokens == pytest.approx(spent["prompt_tokens"], rel=0.2)  # of another few problems
        assert role.completion_tokens >= spent["completion_tokens"]


@pytest.mark.usefixtures("no_trials")
def test_a_role_whose_model_does_not_run_is_called_simulated(tmp_path: Path) -> None:
    words = ["method=best_of_n", *SMALL, *API, "judge=gpt_4o_mini", "judge_engine=simulated"]
    (arm,) = make_plan(compose_jobs(words), tmp_path).arms
    assert {role.role: role.model for role in arm.roles}["judge"] == "simulated"
    assert "simulated" not in {role.model for role in arm.roles if role.role != "judge"}


def test_calls_without_a_formula_are_those_of_a_small_run_scaled_by_problems(tmp_path: Path) -> None:
    words = ("method=duel_evolve", "judge=[gpt_4o,gpt_4o_mini]", "method.generations=2", "method.retries=0", *SMALL)
    (arm,) = make_plan(compose_jobs([*words, *API]), tmp_path).arms
    run = simulated_run(tmp_path / "run", *words, "judge_engine=policy")
    assert {role.calls_by for role in arm.roles} == {"trial"}
    assert {role.role: role.calls for role in arm.roles} == journal_calls(run)


def test_the_price_is_that_of_its_tokens_for_all_seeds(tmp_path: Path) -> None:
    words = ["-m", "method=best_of_n,zero_shot", "method.samples=4", "seed=0,1,2", *SMALL, *API]
    plan = make_plan(compose_jobs([*words, "judge=gpt_4o_mini"]), tmp_path)
    assert [(arm.runs, arm.problems) for arm in plan.arms] == [(3, 3), (3, 3)]
    rates = {"generate": (Fraction("2.5"), Fraction(10)), "judge": (Fraction("0.15"), Fraction("0.6"))}
    total = Fraction(0)
    for arm in plan.arms:
        for role in arm.roles:
            prompt, completion = rates[role.role]
            total += prompt * (role.prompt_tokens or 0) + completion * role.completion_tokens
    assert plan.price == pytest.approx(float(total / 10**6), rel=1e-12)
    assert plan.calls == sum(role.calls for arm in plan.arms for role in arm.roles)
    assert plan.arms[1].smallest_difference == smallest_difference(worst_spread(), 3, 3)
    assert "larger where seeds disagree on a problem" in plan.arms[1].difference_note
    assert "by degrees" not in plan.arms[1].difference_note


@pytest.mark.usefixtures("no_trials")
def test_the_largest_spread_of_a_graded_score_is_said_to_be_far_too_much(tmp_path: Path) -> None:
    plan = make_plan(compose_jobs(["method=zero_shot", "task=billsum", *SMALL[1:], *API]), tmp_path)
    said = plan.arms[0].difference_note
    assert "is recorded below outputs; often several times too large where scores are by degrees;" in said
    assert "runs of two methods usually give a smaller one, so plan again after one seed" in said


@pytest.mark.usefixtures("no_trials")
@pytest.mark.parametrize(("attempts", "about"), [(3, True), (0, False)])
def test_calls_of_a_method_that_draws_repeats_again_are_not_at_most(attempts: int, about: bool, tmp_path: Path) -> None:
    words = ["method=best_of_n", "method.samples=6", "task=tsp", "task.instances=2", *API]
    words.append(f"method.dedup_attempts={attempts}")
    (arm,) = make_plan(compose_jobs(words), tmp_path).arms
    assert arm.estimated is about


def test_earlier_runs_give_tokens_hours_and_the_score(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "outputs" / "run", "method=zero_shot", *SMALL)
    file = run.path / "manifest.json"
    found = json.loads(file.read_text())
    found["models"]["policy"] |= {"engine": "server", "id": "gpt-4o"}
    file.write_text(json.dumps(found | {"seconds": 100.0}))
    spent = run.json("results.json")["cost"]["total"]
    plan = make_plan(compose_jobs(["method=zero_shot", *SMALL, *API]), tmp_path / "outputs")
    (role,) = plan.arms[0].roles
    assert (role.calls, role.prompt_tokens, role.expected_completion_tokens) == tuple(
        spent[name] for name in ("calls", "prompt_tokens", "completion_tokens")
    )
    assert role.prompt_by == "recorded"
    limit = compose_jobs(["method=zero_shot", *SMALL, *API])[0]["method"]["max_tokens"]
    assert role.completion_tokens == 3 * limit  # of three problems
    dollars = [Fraction("2.5") * spent["prompt_tokens"] + 10 * n for n in (3 * limit, spent["completion_tokens"])]
    assert (plan.price, plan.expected_price) == pytest.approx(tuple(float(one / 10**6) for one in dollars), rel=1e-12)
    assert plan.hours == pytest.approx(100 / 3600)  # at the speed of that run
    assert plan.arms[0].smallest_difference == smallest_difference(worst_spread(), 3)  # no model wrote that run's texts
    file.write_text(json.dumps(json.loads(file.read_text()) | {"simulated": False}))
    plan = make_plan(compose_jobs(["method=zero_shot", *SMALL, *API]), tmp_path / "outputs")
    right = run.json("results.json")["metrics"]["accuracy"]["value"]
    assert plan.arms[0].smallest_difference == smallest_difference(worst_spread(mean=right), 3)
    file = run.path / "results.json"
    results = json.loads(file.read_text())
    results["metrics"]["accuracy"]["value"] = 0.0
    file.write_text(json.dumps(results))
    arm = make_plan(compose_jobs(["method=zero_shot", *SMALL, *API]), tmp_path / "outputs").arms[0]
    assert arm.smallest_difference is None  # zeros tell no spread, least of all that of a perfect power
    assert arm.difference_note.startswith("since the recorded score is 0.0 %, of ")


@pytest.mark.usefixtures("no_trials")
def test_hours_without_a_recorded_run_are_the_formulas_and_have_the_price_of_its_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpus: {H100: {hour: 2.0, date: 2026-11-01, source: ours}}")
    words = ["-m", "method=best_of_n,zero_shot", "method.samples=4", "seed=0,1", "model=llama3_1_8b", "engine=vllm"]
    configs = compose_jobs([*words, *SMALL, f"prices={prices}"])
    plan = make_plan(configs, tmp_path)
    exact = estimate(configs).hours  # as scripts/estimate_costs.py says
    assert plan.hours == pytest.approx(exact, rel=1e-9)
    assert plan.hours == pytest.approx(plan.completion_tokens * 2 * 8.0e9 / (989e12 * 0.10) / 3600)
    assert plan.gpu_price == pytest.approx(2 * exact)
    planning.print_plan(plan, Terminal(width=300))
    printed = capsys.readouterr().out
    assert "by a formula, not measured" in printed
    assert "an assumed share of its 989 TFLOP/s, 10%" in printed
    assert f"Price of GPUs: about {dollars(2 * exact)} in these hours, at $2.00 per hour of a GPU" in printed
    unknown = ["method=zero_shot", "model=local", "model.id=none/none", "engine=vllm"]
    (unsized,) = make_plan(compose_jobs([*unknown, *SMALL]), tmp_path).arms
    assert (unsized.hours, unsized.hours_by) == (None, "unknown")
    assert unsized.hours_note.endswith("nor is the config.json of local here")


@pytest.mark.usefixtures("no_trials")
def test_the_ground_truth_takes_no_hours_and_unknown_ones_are_named_in_the_total(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    duels = ["method=best_of_n", "method.samples=4", "method.rounds=1", *SMALL, "engine=vllm"]
    plan = make_plan(compose_jobs(["-m", *duels, "model=llama3_1_8b", "judge=policy,oracle"]), tmp_path)
    own, oracle = plan.arms
    tokens = {role.role: role.completion_tokens for role in oracle.roles}
    assert tokens["judge"] > 0
    assert oracle.hours == pytest.approx(tokens["generate"] * 2 * 8.0e9 / (989e12 * 0.10) / 3600)
    assert own.hours is not None
    assert plan.hours == own.hours + oracle.hours
    assert [memory.model for memory in plan.memory] == ["llama3_1_8b"]
    configs = [["model=llama3_1_8b"], ["model=local", "model.id=none/none"]]
    words = ["method=zero_shot", *SMALL, "engine=vllm"]
    plan = make_plan([compose_jobs([*words, *model])[0] for model in configs], tmp_path)
    known, _ = plan.arms
    planning.print_plan(plan, Terminal(width=300))
    printed = capsys.readouterr().out
    assert f"{planning._show_hours(known.hours)} without local" in printed
    assert "Hours of local: unknown, no run of local" in printed


@pytest.mark.usefixtures("no_trials")
def test_problems_are_those_that_the_task_has_else_those_that_its_configuration_states(tmp_path: Path) -> None:
    words = ("method=zero_shot", "task=mathbench", *API)
    (own,) = make_plan(compose_jobs([*words, "task.source=sample"]), tmp_path).arms
    (stated,) = make_plan(compose_jobs([*words, f"task.data={tmp_path}"]), tmp_path).arms
    assert (
        own.problems
        == sum(role.calls for role in own.roles)
        == len(task_config("mathbench", source="sample").load().problems)
    )
    assert stated.problems == sum(role.calls for role in stated.roles) == 150  # three strata of 50
    for limit, says in ((own.problems, False), (own.problems + 1, True)):
        notes = make_plan(compose_jobs([*words, "task.source=sample", f"task.limit={limit}"]), tmp_path).notes
        said = f"task.limit={limit}: task=mathbench has {own.problems} problems with these settings, and all are used"
        assert (said in notes) is says


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--max-price=0.001", *API), r"--max-price: expected at most \$0.001, the plan says \$0.0"),
        (("--max-price", "0.001", *API), r"--max-price: expected at most \$0.001, the plan says \$0.0"),
        (("--max-price=9", "engine=server", "model=api", "model.id=m"), "--max-price: .* the price of api is unknown"),
        (("--max-price=cheap", *API), "--max-price: expected dollars, as --max-price=20, got --max-price=cheap"),
        (("--max-price", *API), "--max-price: expected dollars"),
        (("--max-price=-1", *API), "--max-price: expected dollars"),
        (("--max-price=nan", *API), "--max-price: expected dollars"),
        (("--max-price=5", "model=gpt_4o", "engine=transformers"), "model=gpt_4o: .* did you mean engine=openai or"),
        (
            ("--max-price=5", *API, "judge=gpt_4o", "judge_engine=vllm"),
            "judge=gpt_4o: .* did you mean judge_engine=openai",
        ),
        (("--cfg=job", *API), "--cfg=job: expected KEY=VALUE, as for a run, and -m for a sweep"),
        (("model=nosuch",), "model=nosuch: unknown model"),
    ],
)
def test_what_is_too_dear_or_cannot_be_planned_is_refused_in_a_line(words: tuple[str, ...], line: str) -> None:
    with pytest.raises(ConfigError, match=line) as error:
        planning.plan(["method=zero_shot", *SMALL, *words], Terminal())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("a b/c", "expected a folder with weights, or a hub id as OWNER/NAME"),
        ("a/b/c/d", "expected a folder with weights, or a hub id as OWNER/NAME"),
        ("./empty", "expected config.json in .*empty, found none"),
        ("./broken", "expected a JSON object in .*broken/config.json, it cannot be read"),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_a_model_that_cannot_be_one_is_an_error_of_a_line(tmp_path: Path, model: str, line: str, engine: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("[1, 2]")
    with pytest.raises(EngineError, match=rf"^model '.*{re.escape(model.removeprefix('./'))}': {line}[^\n]*$"):
        make_plan(
            compose_jobs(["method=zero_shot", *SMALL, "model=local", f"model.id='{model}'", f"engine={engine}"]),
            tmp_path,
        )


@pytest.mark.nightly
def test_the_limit_is_on_tokens_and_gpus_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("gpus: {H100: {hour: 1000.0, date: 2026-11-01, source: ours}}")
    local = ["method=best_of_n", "method.samples=4", *SMALL, "model=llama3_1_8b", "engine=vllm", f"prices={prices}"]
    both = [*local, "judge=gpt_4o", "judge_engine=openai"]
    (arm,) = make_plan(compose_jobs(both), tmp_path).arms
    written = sum(role.completion_tokens for role in arm.roles if role.role == "generate")
    of_gpus = written * 2 * 8.0e9 / (989e12 * 0.10) / 3600 * 1000
    assert arm.price is not None
    total = arm.price + of_gpus
    planning.plan([*both, f"--max-price={1.001 * total}"], Terminal(quiet=True))
    assert not caplog.records
    said = f"the plan says {dollars(total)} ({dollars(arm.price)} for tokens, {dollars(of_gpus)} for GPUs) where each"
    with pytest.raises(ConfigError, match=re.escape(said)):
        planning.plan([*both, f"--max-price={max(arm.price, of_gpus, 0.999 * total)}"], Terminal(quiet=True))
    with pytest.raises(ConfigError, match=r" for GPUs where each .*, or give your price of GPUs: prices=FILE$"):
        planning.plan([*local, "--max-price=0"], Terminal(quiet=True))
    unknown = ["method=zero_shot", *SMALL, "model=local", "model.id=none/none", "engine=vllm"]
    planning.plan([*unknown, "--max-price=0"], Terminal(quiet=True))
    assert "--max-price counts no price of GPUs for local: their hours or" in caplog.text


@pytest.mark.usefixtures("no_trials")
def test_a_folder_that_may_be_elsewhere_is_a_note(tmp_path: Path) -> None:
    words = ["method=zero_shot", *SMALL, "model=local", "model.id=/none", "engine=vllm"]
    made = make_plan(compose_jobs(words), tmp_path)
    assert "Model local: no folder /none is here; its runs will need one with weights." in made.notes
    assert made.hours is None


def test_a_run_that_is_too_dear_does_not_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from evorun.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["method=zero_shot", *SMALL, *API, "--max-price=0.001", f"hydra.run.dir={tmp_path / 'run'}"])
    assert stop.value.code == 1
    assert "--max-price: expected at most $0.001" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("no_trials")
def test_recorded_pairs_of_runs_give_the_spread_of_their_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["method=self_consistency,zero_shot", "method.samples=3", "task=arithmetic", "task.limit=6"]
    words.append("engine=simulated")
    right: dict[tuple[str, int], dict[str, bool]] = {}
    for config in compose_jobs(["-m", *words, "seed=0,1"]):
        name, seed = config["method"]["name"], config["seed"]
        run = carry_out(check(config), tmp_path / "outputs" / f"{name}_{seed}")
        lines = map(json.loads, (run.path / "predictions.jsonl").read_text().splitlines())
        right[name, seed] = {line["problem"]: line["correct"] for line in lines}
    ours, theirs = (
        np.array([list(right[name, seed].values()) for seed in (0, 1)]) for name in ("self_consistency", "zero_shot")
    )
    spread = estimate_spread(ours.astype(float) - theirs)
    assert spread.rest > 0
    for arm in make_plan(compose_jobs(["-m", *words, "seed=0,1,2"]), tmp_path / "outputs").arms:
        assert sorted(arm.difference_pair) == ["self_consistency", "zero_shot"]
        assert arm.difference_note == "from earlier runs at these settings on 6 problems x 2 seeds"
        assert arm.smallest_difference == pytest.approx(smallest_difference(spread, 6, 3))
    planning.plan(["-m", *words, "seed=0,1,2"], Terminal(width=300))
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Smallest difference")]
    assert "on arithmetic, 6 problems x 3 seeds: " in line
    assert " between self_consistency and zero_shot (paired test" in line
    with monkeypatch.context() as patched:
        patched.setattr(
            planned_differences, "smallest_difference", lambda *_: 0.0
        )  # as where all differences are equal
        arm = make_plan(compose_jobs(["-m", *words]), tmp_path / "outputs").arms[0]
    assert (arm.smallest_difference, arm.difference_note) == (
        None,
        "since earlier runs at these settings on 6 problems x 2 seeds all differ by the same amount",
    )
    # of other methods, under another budget or with other settings of a simulated model, these runs are no pair
    for others in (
        ["method=zero_shot,best_of_n", *words[1:]],
        [*words, "budget.calls_per_problem=9"],
        [*words, "engine.skill=0.9"],
    ):
        arms = make_plan(compose_jobs(["-m", *others]), tmp_path / "outputs").arms
        assert [arm.difference_pair for arm in arms] == [[], []]


@pytest.mark.nightly
@pytest.mark.usefixtures("no_trials")
def test_each_pair_of_methods_has_the_figure_that_the_report_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {  # by problem and seed; the seeds differ by less than what is left by chance
        "best_of_n": [(0, 1, 1, 1, 0, 1), (1, 0, 1, 1, 1, 0)],
        "self_consistency": [(0, 1, 1, 0, 0, 1), (1, 0, 0, 1, 1, 0)],
        "zero_shot": [(1, 0, 0, 0, 1, 0), (0, 1, 0, 0, 0, 1)],
    }
    words = [f"method={','.join(scores)}", "task=arithmetic", "task.limit=6", "engine=simulated", "seed=0,1"]
    words.append("budget.calls_per_problem=4")
    for config in compose_jobs(["-m", *words]):
        name, seed = config["method"]["name"], config["seed"]
        run = carry_out(check(config), tmp_path / "outputs" / f"{name}_{seed}").path / "predictions.jsonl"
        lines = [json.loads(line) for line in run.read_text().splitlines()]
        run.write_text(
            "".join(
                json.dumps({**line, "correct": bool(right)}) + "\n"
                for line, right in zip(lines, scores[name][seed], strict=True)
            )
        )
    expected = {}
    for pair in itertools.combinations(scores, 2):
        mean = crossed_mean(np.subtract(*(np.array(scores[name], dtype=float) for name in pair)))
        assert mean is not None
        expected[pair] = mean.smallest_difference()
    arms = make_plan(compose_jobs(["-m", *words]), tmp_path / "outputs").arms
    assert {
        tuple(sorted((arm.method, other))): pytest.approx(size)
        for arm in arms
        for other, size in arm.difference_to.items()
    } == expected
    planning.plan(["-m", *words], Terminal(width=300))
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Smallest difference")]
    smallest, largest = min(expected, key=expected.__getitem__), max(expected, key=expected.__getitem__)
    said = [f"{100 * expected[pair]:.1f} points between {' and '.join(pair)}" for pair in (smallest, largest)]
    assert f": {' to '.join(said)} (paired" in line


@pytest.mark.nightly
def test_the_runs_that_make_a_student_are_planned_with_their_price(tmp_path: Path) -> None:
    student = ("student=dpft", "model=llama3_2_3b", "engine=transformers", "student.tuning.eval_every=null")
    sizes = ("task.instances=3", "task.training_instances=4")
    words = ("method=zero_shot", "task=sudoku", *sizes, *student, "teacher=gpt_4o", "teacher_engine=openai")
    configs = compose_jobs(["-m", *words, f"run.stages={tmp_path}", "seed=0,1"])
    teacher, tuning, own = make_plan(configs, tmp_path).arms
    questions = 4
    assert (teacher.stage, tuning.stage, own.stage) == ("teacher", "student", None)
    assert [(arm.model, arm.engine) for arm in (teacher, tuning)] == [
        ("gpt_4o", "openai"),
        ("llama3_2_3b", "transformers"),
    ]
    (asked,) = teacher.roles
    assert (asked.model_role, asked.calls) == ("teacher", 2 * questions)  # one answer each, for either seed
    price = Fraction("2.5") * (asked.prompt_tokens or 0) + 10 * asked.completion_tokens
    assert teacher.price == pytest.approx(float(price / 10**6), rel=1e-12)
    assert tuning.calls == 2 * 2 * questions  # before and after
    assert (tuning.price, own.price, own.calls) == (None, None, 2 * own.problems)
    done = name_stage(
        "teacher", "zero_shot", "sudoku", run_digest(raw := teacher_composition(configs[0]), identity(raw))
    )
    (tmp_path / done).mkdir()
    manifest = simulated_run(tmp_path / "other", "method=zero_shot", *SMALL).path / "manifest.json"
    shutil.copy(manifest, tmp_path / done)
    reused = make_plan(configs, tmp_path)
    assert reused.arms[0].calls == questions
    assert any(done in note for note in reused.notes)


@pytest.mark.usefixtures("no_trials")
def test_arms_with_students_are_told_apart_by_their_choices_alone(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("task.box=2", "task.empty_cells=4", "task.instances=2", "task.training_instances=4")
    students = "student=none,dpft_full,dpft_top"
    words = ["-m", "method=zero_shot", "task=sudoku", *sizes, students, "model=llama3_2_3b", "engine=vllm"]
    assert planning.plan(words, Terminal(width=200)) == 0
    shown = capsys.readouterr().out
    rows = [re.split(" {2,}", line.strip()) for line in shown.partition("plan by role")[0].splitlines()]
    assert [row[0] for row in rows if len(row) == 7][1:] == [
        "teacher of dpft_full, dpft_top",
        "student dpft_full",
        "student dpft_top",
        "zero_shot",
        "student=dpft_full",
        "student=dpft_top",
        "total",
    ]
    assert [line.partition(" responses")[0] for line in shown.splitlines() if line.startswith("Fine-tuning")] == [
        "Fine-tuning of student=dpft_full: on at most 1,380",
        "Fine-tuning of student=dpft_top: on at most 276",  # a fifth
    ]


@pytest.mark.usefixtures("no_trials")
def test_arms_of_one_student_are_told_apart_by_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("task.box=2", "task.empty_cells=4", "task.instances=2", "task.training_instances=4")
    varied = ("student=dpft", "student.tuning.epochs=1,2", "teacher=qwen2_5_7b,qwen2_5_32b")
    planning.plan(["-m", "method=zero_shot", "task=sudoku", *sizes, *varied, "model=llama3_2_3b"], Terminal(width=200))
    shown = capsys.readouterr().out
    assert "  teacher of dpft, qwen2_5_7b  " in shown
    assert "  student dpft, epochs=2, teacher=qwen2_5_7b  " in shown
    assert "  student.tuning.epochs=2, teacher=qwen2_5_7b  " in shown


@pytest.mark.usefixtures("no_trials")
def test_arms_are_told_apart_by_settings_of_a_simulated_model_and_named_by_what_is_unusual(
    capsys: pytest.CaptureFixture[str],
) -> None:
    variants = "[{method: mpo, engine.loophole: 0}, {method: mpo, method.refine_every: 5, method.refine_samples: 9}]"
    planning.plan(["experiment=mpo/simulated_study", f"hydra.sweeper.variants={variants}"], Terminal(width=200))
    rows = [re.split(" {2,}", line.strip())[0] for line in capsys.readouterr().out.splitlines()]
    assert [row for row in rows if row.startswith(("ppo", "mpo"))] == [
        "ppo",
        "mpo",
        "mpo, engine.loophole=0",
        "mpo, refine_every=5, refine_samples=9",
    ]


@pytest.mark.nightly
@pytest.mark.usefixtures("no_trials")
def test_each_arm_of_several_budgets_has_its_own_in_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment=lyria/scaling", "engine=simulated", "task=sudoku", "task.instances=4", "seed=0"]
    planning.plan([*words, "budget=lyria_5x5,lyria_10x10,lyria_20x20"], Terminal(width=200))
    rows = [re.split(" {2,}", line.strip())[0] for line in capsys.readouterr().out.splitlines()]
    assert [row for row in rows if row.startswith("lyria, simulated")] == [
        "lyria, simulated, budget=lyria_5x5",
        "lyria, simulated, budget=lyria_10x10, generations=10, population=10",
        "lyria, simulated, budget=lyria_20x20, generations=20, population=20",
    ]


@pytest.mark.parametrize(
    ("given", "teacher"),
    [
        (["engine=vllm"], "vllm"),  # also where no GPU is
        (["engine=transformers"], "auto"),
        (["engine=vllm", "teacher_engine=openai", "teacher=gpt_4o"], "server"),
    ],
)
def test_a_teacher_without_an_engine_of_its_own_is_on_vllm_with_the_run(given: list[str], teacher: str) -> None:
    (config,) = compose_jobs(["method=zero_shot", "task=sudoku", "student=dpft", "model=llama3_2_3b", *given])
    assert teacher_composition(config)["engine"]["name"] == teacher


def test_a_setting_of_a_student_without_one_is_an_error_of_a_line(tmp_path: Path) -> None:
    configs = compose_jobs(["method=zero_shot", "task=sudoku", "model=llama3_2_3b", "student.tuning.epochs=1"])
    with pytest.raises(ConfigError, match=r"^student.tuning: expected a student .*, got none; set student=laft"):
        make_plan(configs, tmp_path)


@pytest.mark.usefixtures("no_trials")
def test_a_fine_tuning_is_planned_by_its_conversations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "chats.jsonl"
    chat = [{"role": "user", "content": "a" * 40}, {"role": "assistant", "content": "b" * 360}]
    long = [{"role": "user", "content": "c"}, {"role": "assistant", "content": "d" * 9000}]
    data.write_text("".join(json.dumps({"messages": said}) + "\n" for said in [chat] * 9 + [long]))
    method = ("method=sft", f"method.data={data}", "method.held_out=0", "method.epochs=2", "method.batch=4")
    words = [*method, "method.max_length=1000", "method.eval_every=2", "task=sudoku", "task.instances=3"]
    words += ["task.box=2", "task.empty_cells=4", "task.training_instances=4", "model=llama3_1_8b"]
    tokens = 2 * (9 * 400 / 4 + 1000)
    (arm,) = make_plan(compose_jobs([*words, "training=tinker", "engine=tinker"]), tmp_path).arms
    assert arm.training is not None
    assert arm.training.trained_tokens == tokens
    assert arm.calls == (2 + 2) * 3 * 5  # before, after steps 2, 4 and 5; greedily, and 4 samples
    parts = make_plan(compose_jobs([*words, "engine=vllm"]), tmp_path, read_inventory("8x80")).gpus[0].parts
    assert {part.key: part.copies for part in parts} == {"engine": 7, "training": 1}  # far more to decode than to learn
    assert planning.plan([*words, "engine=vllm"], Terminal()) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Fine-tuning: on 10 conversations of {data}, 2 epochs, 3,800 tokens in all, about 0.6 s of an H100" in said
    assert planning.plan([*words, "engine=simulated", "engine.data_skill=0.5"], Terminal()) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3,800 tokens in all, simulated, which takes no GPU." in said
    assert "H100" not in said
    with pytest.raises(DataError, match=r"^method.data: cannot read .*nosuch.jsonl"):
        planning.plan([*words, "method.data=nosuch.jsonl"], Terminal())


def test_a_random_baseline_beside_a_server_that_trains_costs_nothing() -> None:
    words = ["-m", "method=grpo", "method.steps=2", "method.temperature=1", *SMALL, "training=tinker", "model=random"]
    (baseline,) = make_plan(compose_jobs(words), Path("outputs")).arms
    assert baseline.training is None
    billed = [*words[:-1], "model=deepseek_v3_1,random"]
    made = make_plan(compose_jobs(billed), Path("outputs"))
    assert made.price_unknown == []
    assert made.price == made.arms[0].price is not None
    assert planning.plan([*billed, f"--max-price={1.01 * made.price}"], Terminal(quiet=True)) == 0


def test_a_refusal_names_the_arm_or_the_experiment_that_it_is_about() -> None:
    words = ["experiment=espl/figure12", "task.source=sample", "task=hmmt", "training=tinker"]
    one = r"^a job of this sweep cannot run \(task=hmmt method=espl_evolution; 1 more\): training: expected a "
    with pytest.raises(ConfigError, match=one):
        planning.plan(words, Terminal())
    setter = r"^method.temperature: expected 1 .*, got 0.6; experiment=espl/figure12 sets it, method.temperature=VALUE "
    with pytest.raises(ConfigError, match=setter):
        planning.plan([*words, "method=espl"], Terminal())
    with pytest.raises(ConfigError, match=r", got 0.7$"):
        planning.plan([*words, "method=espl", "method.temperature=0.7"], Terminal())


@pytest.mark.nightly
def test_the_papers_figure_on_a_server_is_planned_without_a_key() -> None:
    page = (Path(plans.__file__).parents[2] / "docs/papers/espl.md").read_text()
    (command,) = re.findall(r"evorun plan (experiment=espl/figure12 [^']*'[^']*')", page)
    words = shlex.split(command.replace("\\\n", " ").replace("source=hub", "source=sample"))
    made = make_plan(compose_jobs([*words, "task=hmmt", "method.steps=1", "method.eval_samples=1"]), Path("outputs"))
    assert [(arm.method, arm.task, arm.training is not None) for arm in made.arms if arm.model != "random"] == [
        ("espl_evolution", "hmmt", False),
        ("espl", "hmmt", True),
        ("grpo", "hmmt", True),
        ("espl", "beyond_aime", True),
    ]
    assert made.price is not None


def test_a_table_has_the_price_of_each_role(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["method=best_of_n", "method.samples=4", *SMALL, "engine=openai", "model=gpt_4o_mini", "judge=gpt_4o"]
    (arm,) = make_plan(compose_jobs(words), Path("outputs")).arms
    assert [(role.model_role, role.model) for role in arm.roles] == [("policy", "gpt_4o_mini"), ("judge", "gpt_4o")]
    planning.plan(words, Terminal(width=80))
    shown = capsys.readouterr().out
    for role in arm.roles:
        line = next(line for line in shown.splitlines() if line.split()[:2] == [role.model_role, role.model])
        assert dollars(role.price) in line


@pytest.mark.usefixtures("no_trials")
@pytest.mark.parametrize(("calls", "says"), [(60, True), (61, False)])
def test_a_budget_that_ends_in_generation_0_is_noted(tmp_path: Path, calls: int, says: bool) -> None:
    words = ("method=duel_evolve", "method.initial_candidates=12", "method.duels=24", "method.generations=1", *SMALL)
    plan = make_plan(compose_jobs([*words, *API, f"budget.calls_per_problem={calls}"]), tmp_path)
    assert any("may never leave generation 0, which takes up to 60 calls" in note for note in plan.notes) is says


def test_it_is_a_table_of_80_columns_or_a_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    planning.plan(["method=zero_shot", *SMALL, *API, "--max-price=5"], Terminal(width=80))
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "Hours: unknown, no run of gpt_4o on engine=openai is recorded." in said
    planning.plan(["method=zero_shot", *SMALL, *API, "--json"], Terminal())
    document = json.loads(capsys.readouterr().out)
    assert (document["runs"], document["calls"], document["price_unknown"]) == (1, 3, [])


@pytest.mark.usefixtures("no_trials")
def test_runs_of_simulated_models_tell_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["method=zero_shot", *SMALL, "model=gpt_4o", "engine=simulated"]
    simulated_run(Path("outputs/run").absolute(), *words)
    planning.plan(words, Terminal(width=80))
    said = capsys.readouterr().out
    assert (
        "Hours: unknown, simulated runs tell no rate; one core makes hundreds of calls/s (docs/guides/simulate.md)."
        in said
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("no_trials")
def test_hours_of_several_sources_name_their_arms_and_have_a_sum(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-m", "method=zero_shot,grpo", *SMALL, "engine=vllm", "hydra.sweeper.variants=[{model: random}]"]
    assert planning.plan([*words, "model=qwen2_5_7b"], Terminal(width=300)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("Hours of zero_shot, qwen2_5_7b, vllm: about ") for line in lines) == 1
    assert sum(line.startswith("Hours of zero_shot, random, simulated; grpo, random, sim") for line in lines) == 1
    made = make_plan(compose_jobs([*words, "model=qwen2_5_7b"]), Path("outputs"))
    assert made.gpu_price is not None
    assert f"Price of GPUs together: about {dollars(made.gpu_price)}." in lines


@pytest.mark.usefixtures("no_trials")
def test_random_baselines_have_no_smallest_difference(capsys: pytest.CaptureFixture[str]) -> None:
    for model, number in (("random", 0), ("smollm2_135m", 1)):
        planning.plan(["method=zero_shot", f"model={model}", "engine=simulated", *SMALL], Terminal())
        assert capsys.readouterr().out.count("Smallest difference") == number


@pytest.mark.usefixtures("no_trials")
def test_a_model_larger_than_a_gpu_says_how_many_its_weights_take(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["method=zero_shot", *SMALL, "engine=vllm"]
    planning.plan([*words, "model=deepseek_v3_1", "model.quantization=null"], Terminal())
    said = " ".join(capsys.readouterr().out.split())
    assert "Memory of deepseek_v3_1: weights 1249.9 GiB" in said
    assert "; 18 H100 of 80 GB or more for the weights alone." in said
    planning.plan([*words, "model=qwen2_5_32b"], Terminal())
    assert "H100 of 80 GB" not in " ".join(capsys.readouterr().out.split())


def test_memory_is_parameters_times_bytes_and_keys_and_values_of_all_layers(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584}
    config |= {"intermediate_size": 18944, "vocab_size": 152064}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = estimate_memory(ModelConfig(name="qwen2_5_7b", id=str(tmp_path), dtype="bfloat16"))
    assert found.weights_gib == pytest.approx(7.616e9 * 2 / 2**30, rel=1e-3)  # of the model's card: 7.61 billion
    # the model's card: 28 layers, 4 heads of keys and values, 128 wide; 2 bytes for each key and each value
    assert found.cache_gib_per_1000_tokens == pytest.approx(28 * 4 * 128 * 2 * 2 * 1000 / 2**30)
    unknown = estimate_memory(ModelConfig(name="other", id=str(tmp_path / "none")))
    assert (unknown.weights_gib, unknown.cache_gib_per_1000_tokens) == (None, None)


FOLDED = {"crossover": "generate", "mutate": "generate"}
"""Roles that formulas count together with others."""


@pytest.mark.usefixtures("long_trials")
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            ("duel_evolve", "task=mathbench", "method.duels=2", "method.initial_candidates=4", "method.children=4"),
            marks=pytest.mark.nightly,
        ),
        ("feedback_descent", "task=mathbench"),
        pytest.param(("lyria", "task=sudoku", "task.instances=4", "method.population=6"), marks=pytest.mark.nightly),
    ],
    ids=lambda words: words[0],
)
def test_prompts_are_those_of_a_long_run_since_they_are_extrapolated_by_step(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    name, *settings = words
    sample = [] if name == "lyria" else ["task.source=sample", "task.limit=6"]
    words = (f"method={name}", "method.generations=12", *settings, *sample)
    (arm,) = make_plan(compose_jobs([*words, "engine=simulated"]), tmp_path).arms
    spent: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for role, cost in simulated_run(tmp_path / "run", *words).json("results.json")["cost"].items():
        spent[FOLDED.get(role, role)] += cost["prompt_tokens"]
        calls[FOLDED.get(role, role)] += cost["calls"]
    for role in arm.roles:
        assert (role.prompt_tokens or 0) / role.calls == pytest.approx(spent[role.role] / calls[role.role], rel=0.1)


EVOLVING = ("method=duel_evolve", "method.initial_candidates=4", "method.duels=2", "method.children=4", *SMALL)


@pytest.mark.usefixtures("no_trials")
def test_a_budget_of_calls_says_which_generation_it_reaches(tmp_path: Path) -> None:
    # 4 responses and 2 duels in both orders take 8 calls per problem in each generation
    (arm,) = make_plan(
        compose_jobs([*EVOLVING, *API, "method.generations=9", "budget.calls_per_problem=20"]), tmp_path
    ).arms
    assert arm.reach == (
        "budget.calls_per_problem=20 ends a run in about generation 2 of 9, after 25.0 % of the calls of its settings"
    )
    (arm,) = make_plan(
        compose_jobs([*EVOLVING, *API, "method.generations=1", "budget.calls_per_problem=20"]), tmp_path
    ).arms
    assert arm.reach is None


@pytest.mark.usefixtures("no_trials")
def test_a_budget_says_how_early_replaced_repeats_may_end_a_population(tmp_path: Path) -> None:
    # 30 first answers, then 21 calls for each generation; where all repeat, four times as many
    words = ["method=lyria", "task=tsp", "task.instances=2", *API, "budget.calls_per_problem=150"]
    (arm,) = make_plan(compose_jobs(words), tmp_path).arms
    assert arm.reach == (
        "budget.calls_per_problem=150 ends a run in about generation 7 of 15, after 43.5 % of the calls of its "
        "settings, where no answer repeats: each repeat is drawn again, up to 3 times (method.dedup_attempts), and "
        "where all do, it ends in generation 1"
    )


def test_a_generation_of_gepa_takes_the_validation_problems_that_the_run_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # the sample leaves 18, 9 to choose by: in a generation 2 x 3 rollouts of a minibatch, a reflection and 9 rollouts
    words = ["method=gepa", "task=mathbench", "task.source=sample", "task.limit=12", "engine=simulated"]
    plan = make_plan(compose_jobs([*words, "budget=calls_300"]), tmp_path)
    (arm,) = plan.arms
    last = math.ceil((300 * 12 - 9 - 12) / (2 * 3 + 1 + 9))
    assert arm.reach == f"budget.calls_per_problem=300 is used up in generation {last} or later"
    assert sum(role.calls for role in arm.roles) == 300 * 12
    planning.print_plan(plan, Terminal(width=300))
    said = capsys.readouterr().out  # prompts that fail their minibatch leave calls for more reflections
    assert "Calls: about, by formula, and retries" in said
    assert "at most" not in said
    assert "Earlier runs are read below outputs/ of the folder in which evorun plan is called." in said


@pytest.mark.usefixtures("no_trials")
def test_a_budget_of_calls_gives_a_population_its_whole_steps(tmp_path: Path) -> None:
    # 4 calls per problem in each step: 20 have room for five
    settings = ("method=rsa", "method.population=4", *SMALL, *API, "budget.calls_per_problem=22")
    (arm,) = make_plan(compose_jobs([*settings]), tmp_path).arms
    assert [role.calls for role in arm.roles] == [3 * 20]
    assert arm.reach is None


@pytest.mark.usefixtures("no_trials")
@pytest.mark.parametrize(("method", "responses"), [("rsa", 120), ("best_of_n", 24), ("duel_evolve", 72)])
def test_responses_have_all_turns_of_a_task_with_tools(method: str, responses: int, tmp_path: Path) -> None:
    # a fifth of 120 calls; 12 candidates and 6 children of 4 turns; whole steps of 64, of which short ones leave some
    words = (f"method={method}", "task=search_qa", "task.source=sample", "task.max_turns=4", "task.limit=2")
    words += ("method.generations=1", "method.children=6") if method == "duel_evolve" else ()
    (arm,) = make_plan(compose_jobs([*words, *API, "budget.calls_per_problem=120"]), tmp_path).arms
    assert {role.role: role.calls for role in arm.roles}["generate"] == 2 * responses


@pytest.mark.usefixtures("no_trials")
def test_limits_of_responses_that_differ_between_methods_are_noted_with_the_key_that_makes_them_alike(
    tmp_path: Path,
) -> None:
    words = ["-m", "method=rsa,zero_shot", "method.max_tokens=64", *SMALL, *API]
    assert not any("Responses" in note for note in make_plan(compose_jobs(words), tmp_path).notes)
    configs = compose_jobs(words)
    configs[0]["method"]["max_tokens"] = 8192
    assert make_plan(configs, tmp_path).notes[-1] == (
        "Responses to mathbench may be longer for some methods: zero_shot 64 tokens; rsa 8,192 tokens. "
        "task.sampling.max_tokens=64 is one limit for all."
    )


def test_a_budget_in_dollars_says_what_it_buys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*EVOLVING, *API, "budget.price=1000"]
    dear, some = (make_plan(compose_jobs([*words, f"method.generations={n}"]), tmp_path).price for n in (9, 3))
    assert dear is not None
    assert some is not None
    words = [*EVOLVING, *API, "method.generations=9", f"budget.price={1.01 * some}"]
    planning.plan([*words, f"--max-price={1.02 * some}"], Terminal(width=300))
    said = capsys.readouterr().out
    assert "ends a run in about generation 3 of 9, after 40.0 % of the calls of its settings" in said
    assert f"Price: at most {dollars(dear)}" in said
    with pytest.raises(ConfigError, match="each completion is as long as its limit"):
        planning.plan([*words, f"--max-price={0.99 * some}"], Terminal())


def test_later_steps_are_taken_to_be_like_the_last_ones_of_a_trial() -> None:
    by_step = {
        "generate": {0: Asked(4, 400), **{step: Asked(2, 200 * (1 + step)) for step in range(1, 5)}},
        "evaluate": {0: Asked(2, 20), 4: Asked(2, 60)},
    }
    trial = Trial(problems=2, cost={}, by_step=by_step, last_step=4, max_tokens={}, sample=False)
    # 400, 400, 600, 800, then 1,000 tokens in each of the steps 4 to 40; 4 + 40 * 2 calls
    known = (400 + 400 + 600 + 800 + 37 * 1000) / (4 + 40 * 2)
    assert extrapolate_prompt(trial, ["generate"], 42, 40) == pytest.approx(known)
    assert extrapolate_prompt(trial, ["generate"], 3, 1) == pytest.approx((400 + 400) / 6)
    # 5 calls on each of 2 problems: 2 at 10 tokens in step 0, 8 at 30
    assert extrapolate_prompt(trial, ["evaluate"], 5, 40) == pytest.approx((20 + 8 * 30) / 10)


@pytest.mark.nightly
def test_an_experiment_of_ones_own_is_planned(tmp_path: Path) -> None:
    own = tmp_path / "my conf" / "experiment" / "mine.yaml"
    own.parent.mkdir(parents=True)
    swept = "hydra: {mode: MULTIRUN, sweeper: {params: {method: 'zero_shot,best_of_n'}}}"
    own.write_text(f"# @package _global_\ndefaults:\n  - override /task: arithmetic\n{swept}\ntask: {{limit: 3}}\n")
    jobs = compose_jobs(["--config-dir", str(own.parents[1]), "experiment=mine", "engine=simulated"])
    found = [(job["method"]["name"], job["task"]["name"], job["task"]["limit"]) for job in jobs]
    assert found == [("zero_shot", "arithmetic", 3), ("best_of_n", "arithmetic", 3)]
    named = own.parent / "duel_evolve" / "figure2.yaml"  # Hydra takes evorun's own of this name
    named.parent.mkdir()
    named.write_text("# @package _global_\nhydra: {mode: RUN}\n")
    assert len(compose_jobs(["--config-dir", str(own.parents[1]), "experiment=duel_evolve/figure2"])) > 1
    with pytest.raises(ConfigError, match="--config-dir: expected a folder of configurations, found none at"):
        compose_jobs([f"--config-dir={tmp_path / 'none'}", "experiment=mine"])
    with pytest.raises(ConfigError, match=r"unknown experiment; .* one of your own needs --config-dir FOLDER"):
        compose_jobs(["experiment=mine"])


class Coached(Rloo):
    """A plug-in that learns, and asks the policy for advice with each batch."""

    name = "coached"
    roles: ClassVar[Mapping[str, Role]] = {**Rloo.roles, "coach": Role("policy")}

    def prompts(self, ctx: RunContext) -> PromptSource:
        return Advised(ctx)


class Advised(FixedPrompt):
    def __init__(self, ctx: RunContext) -> None:
        super().__init__("")
        self._ctx = ctx

    async def evolve(self, batch: Batch) -> dict[str, float]:
        prompts = [self._ctx.shared.task.generation_prompt(episode.asked.problem) for episode in batch.episodes]
        await self._ctx.shared.generate(prompts, role="coach", step=batch.step, sampling=Sampling(max_tokens=9))
        return {}


def test_a_plug_in_that_learns_has_the_calls_of_the_method_that_it_extends_and_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    point = EntryPoint("coached", f"{__name__}:Coached", "evorun.methods")
    monkeypatch.setattr(registry, "plugins", lambda kind: {"coached": point} if kind == "method" else {})
    register()
    size = ("method.steps=3", "method.problems_per_step=4", "method.group=3", "method.eval_samples=1")
    words = ("method=coached", "task=arithmetic", "task.test_problems=10", "engine=simulated", *size)
    (arm,) = make_plan(compose_jobs(list(words)), tmp_path).arms
    run = carry_out(check(compose_jobs(list(words))[0]), tmp_path / "run")
    made = Counter(read_role(key) for key in run.calls())
    assert {role.role: role.calls for role in arm.roles} == made
    assert made == {"rollout": 36, "coach": 36, "evaluate": 40}
    assert {role.role: role.calls_by for role in arm.roles} == {
        **dict.fromkeys(("rollout", "evaluate"), "formula"),
        "coach": "trial",
    }
