"""The costs on the papers' pages: formulas against runs on simulated models, and tables against the formulas."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import estimate_costs
import pytest
from write_paper_tables import (
    ROWS,
    TABLES,
    describe_counts,
    find_measured,
    find_reported,
    make_comparison,
    make_cost_row,
    negate,
    shorten,
    write_rows,
)

from building import composed, simulated_run
from evorun.cli.composed_jobs import compose_experiment, count_random_jobs
from evorun.errors import ConfigError
from evorun.methods.base import PerProblem
from evorun.runner import registry
from evorun.runner.call_counts import ITEMS, Part
from evorun.runner.estimates import BILLIONS, DECODING, PEAK, TRAINING, Cost, count_calls, estimate, settle_budget

PAPERS = Path(__file__).parents[1] / "docs" / "papers"
SMALL = ("task.source=sample", "task.limit=2", "engine=simulated")
LEARNING = (*SMALL, "method.steps=3", "method.problems_per_step=3", "method.eval_every=2", "method.eval_samples=2")
MPO = (*SMALL, "method=mpo", "task=essay", "release=mpo", "method.steps=4", "method.problems_per_step=4")


def count(*words: str) -> dict[str, float]:
    """Return the estimated calls by role."""
    total = Counter[str]()
    for part in count_calls(composed(*words)):
        total[part.role] += part.calls
    return {role: calls for role, calls in total.items() if calls}


def measure(folder: Path, *words: str) -> dict[str, int]:
    """Return the calls by role of a run on simulated models."""
    cost = simulated_run(folder, *words).json("results.json")["cost"]
    return {role: figures["calls"] for role, figures in cost.items() if role != "total"}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "words",
    [
        ("method=zero_shot", "task=mathbench"),
        ("method=self_consistency", "task=mathbench", "method.samples=5"),
        ("method=best_of_n", "task=mathbench", "method.samples=12", "method.rounds=2"),
        ("method=feedback_descent", "task=mathbench", "method.generations=4"),
        ("method=duel_evolve", "task=mathbench", "method.generations=2"),
        ("method=self_consistency", "task=mathbench", "budget=tiny"),
        ("method=best_of_n", "task=mathbench", "budget=tiny"),
        ("method=feedback_descent", "task=mathbench", "budget=tiny"),
        ("method=feedback_descent", "task=mathbench", "budget.calls=80"),
        ("method=duel_evolve", "task=mathbench", "budget=tiny"),
        ("method=duel_evolve", "task=mathbench", "budget.generations=1"),
    ],
    ids=" ".join,
)
def test_calls_are_those_of_a_run_without_repeats(words: tuple[str, ...], tmp_path: Path) -> None:
    words = (*SMALL, "method.retries=0", *words)
    assert measure(tmp_path, *words) == count(*words)


@pytest.mark.nightly
def test_calls_of_lyria_are_a_mean(tmp_path: Path) -> None:
    words = ("engine=simulated", "model=random", "method=lyria", "task=tsp", "task.limit=6", "method.dedup_attempts=0")
    words = (*words, "method.population=20", "method.generations=4")
    assert sum(measure(tmp_path, *words).values()) == pytest.approx(count(*words)["generate"], rel=0.1)


@pytest.mark.nightly
def test_calls_of_learning_are_those_of_a_run(tmp_path: Path) -> None:
    words = (*LEARNING, "method=espl", "task=dapo_aime25")
    estimated, measured = count(*words), measure(tmp_path, *words)
    assert measured.pop("rollout") == estimated["rollout"]
    assert measured.pop("evaluate") == estimated["evaluate"]
    assert sum(measured.values()) <= estimated["reflect"] < 1.5 * sum(measured.values())


def test_calls_of_a_rubrics_refinement_are_those_of_a_run(tmp_path: Path) -> None:
    words = (*MPO, "method.refine_every=2", "method.refine_samples=4", "method.refine_by=whole", "method.scoring=whole")
    estimated = count(*words)
    measured = measure(tmp_path, *words)
    for role in ("rollout", "evaluate", "gold", "analyse"):
        assert measured[role] == estimated[role], role
    assert measured["refine"] + measured["merge"] == estimated["refine"]
    assert estimated["score"] <= measured["score"] < 1.3 * estimated["score"]  # unreadable scores are asked for again


def test_a_budget_bounds_the_calls_of_any_method_but_those_of_the_gold_judge() -> None:
    limited = (*MPO, "budget.calls_per_problem=3")
    assert sum(count(*limited).values()) == pytest.approx(2 * 3 + count(*MPO)["gold"])
    assert sum(count(*SMALL, "method=gepa", "task=mathbench", "budget=calls_300").values()) == pytest.approx(600)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["hydra"], "experiment=hydra: unknown experiment; choose one of duel_evolve/ablations, "),
        (["quickstart", "model=nosuch"], "model=nosuch: unknown model; choose one of api, "),
        (["quickstart", "method.generatoins=3"], "method.generatoins: unknown key; did you mean method.generations?"),
        (["quickstart", "modell=api"], "modell: unknown key; did you mean model?"),
        pytest.param(
            ["duel_evolve/simulated_study", "method=zero_shot", "task=rows", "task.limit=null"],
            "task=rows: expected a known number of problems, got a task of any size; set task.limit=N",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            ["duel_evolve/simulated_study", "method=gepa", "task=rows"],
            "task=rows: expected a known number of training problems for method=gepa, got a task of any size; ",
            marks=pytest.mark.nightly,
        ),
        (
            ["duel_evolve/simulated_study", "method=feedback_descent", "budget=unlimited", "budget.tokens=9000"],
            "method.generations: expected a number, or a limit on calls, got null and none; set method.generations=N ",
        ),
    ],
    ids=" ".join,
)
def test_what_cannot_be_estimated_is_said_in_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        estimate_costs.main(words)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {line}")


@pytest.mark.parametrize("settings", [{}, {"problems_per_step": 4}])
def test_a_method_without_a_formula_is_named(settings: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "method_class", {"hill": PerProblem}.__getitem__)
    with pytest.raises(
        ConfigError, match=r"^method=hill: expected a method whose calls have a formula .* got one without"
    ):
        count_calls(composed(*SMALL) | {"method": {"name": "hill", **settings}})


def test_an_experiment_that_sweeps_nothing_is_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    estimate_costs.main(["quickstart"])
    assert capsys.readouterr().out.startswith("1 runs, 216 calls, ")  # 6 problems · (4 + 2 · 4 + 3 · 4 · 2)


def test_an_experiment_of_ones_own_is_found_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "experiment").mkdir()
    own = "# @package _global_\ndefaults:\n  - override /method: zero_shot\n  - override /task: mathbench\n"
    (tmp_path / "experiment" / "own.yaml").write_text(f"{own}task:\n  source: sample\n  limit: 7\n")
    estimate_costs.main(["--config-dir", str(tmp_path), "own", "model=qwen2_5_7b"])
    assert capsys.readouterr().out.startswith("1 runs, 7 calls, ")


def test_hours_of_a_model_of_unknown_size_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    estimate_costs.main(["quickstart"])
    assert capsys.readouterr().out.endswith(" tokens, hours of an H100 unknown for smollm2_135m\n")


@pytest.mark.nightly
def test_pages_count_random_baselines_beside_the_runs() -> None:
    # three puzzles, three methods; a baseline of each
    assert (len(compose_experiment("lyria/table1", [])), count_random_jobs("lyria/table1")) == (9, 9)
    assert "| 9 + 9 random |" in (PAPERS / "lyria.md").read_text()


def test_hours_are_those_of_the_pages_formula() -> None:
    cost = Cost()
    cost.add([Part("generate", "qwen2_5_7b", 1000, 4096), Part("judge", "gpt_4o", 10, 100)])
    assert (cost.calls, cost.tokens) == (1010, 4_097_000)
    assert cost.describe_hours().endswith(" hours of an H100, unknown for gpt_4o")
    assert cost.hours == pytest.approx(1000 * 4096 * 2 * 7.6e9 / (989e12 * 0.10) / 3600)
    text = (PAPERS.parent / "guides" / "costs.md").read_text()
    assert f"{PEAK / 1e12:.0f}e12 FLOP/s · {DECODING:.0%}".replace("%", " %") in text
    assert f"{PEAK / 1e12:.0f}e12 FLOP/s · {TRAINING:.0%}".replace("%", " %") in text
    assert f"have {ITEMS} items" in text
    for billions, speed in re.findall(r"^\| ([\d.]+) billion \| ([\d,]+) \|", text, re.MULTILINE):
        exact = PEAK * DECODING / (2e9 * float(billions))
        assert float(speed.replace(",", "")) == pytest.approx(exact, rel=0.01)
        assert float(billions) in BILLIONS.values()


@pytest.mark.nightly
def test_the_table_says_which_methods_take_their_size_from_a_budget() -> None:
    text = (PAPERS.parent / "guides" / "costs.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| .* \| (yes|no) \|$", text, re.MULTILINE))
    assert len(told) > 10
    for method, says in told.items():
        small, large = (composed(*SMALL, f"method={method}", f"budget.calls_per_problem={n}") for n in (20, 40))
        assert (settle_budget(small, 2)[0] != settle_budget(large, 2)[0]) == (says == "yes"), method


def test_a_students_teacher_answers_once_for_each_way_of_teaching() -> None:
    laft, dpft = compose_experiment("laft/tsp", ["student=laft,dpft", "method=zero_shot"])
    taught = 100 * 30 * (1 + (0.7 * 0.7 + 0.3 * 0.7) * 15)  # training questions, answered by Lyria
    assert estimate([laft, laft]).calls == pytest.approx(2 * 50 + taught)
    assert estimate([dpft]).calls == 50 + 100


def test_numbers_are_short() -> None:
    assert [shorten(one) for one in (0, 0.4, 9.96, 87, 1_812, 1.36e6, 216e6, 7.2e9)] == (
        ["0", "0.4", "10.0", "87", "1.8\xa0k", "1.4\xa0M", "216\xa0M", "7.2\xa0G"]
    )


def test_a_figure_that_neither_paper_nor_study_has_is_an_error() -> None:
    assert find_reported("duel_evolve/figure2", "accuracy", {"method": "feedback_descent"}) == 0.72
    with pytest.raises(ValueError, match="not enough values"):
        find_reported("duel_evolve/figure2", "accuracy", {"method": "gepa"})
    assert find_measured("espl_study.md", "method=espl", "over RL") == "0.17 ± 0.07"
    with pytest.raises(ValueError, match="expected a row"):
        find_measured("espl_study.md", "method=gepa", "over RL")
    assert [negate(one) for one in ("-0.08 ± 0.07", "0.01 ± 0.06")] == ["+0.08 ± 0.07", "-0.01 ± 0.06"]


def read_table(page: str, what: str) -> str:
    """Return what a page has between its marks."""
    text = (PAPERS / f"{page}.md").read_text()
    (table,) = re.findall(rf"<!-- {what}: .*? -->\n\n(.*?)\n<!-- end -->", text, re.DOTALL)
    return str(table)


@pytest.mark.parametrize("page", ROWS)
def test_pages_compare_what_the_generator_compares(page: str) -> None:
    assert read_table(page, "compared") == make_comparison(page)


@pytest.mark.parametrize("page", ROWS)
def test_pages_have_a_row_for_each_table_and_figure(page: str) -> None:
    rows = re.findall(r"^\| ([^|]+) \| `evorun experiment=([^`]+)` \|", read_table(page, "costs"), re.MULTILINE)
    assert rows == ROWS[page]


@pytest.mark.parametrize("page", TABLES)
def test_pages_have_the_papers_figures_of_all_arms(page: str) -> None:
    assert read_table(page, "reported") == write_rows(TABLES[page]())


def test_mpos_lead_is_said_over_either_fixed_rubric() -> None:
    rated = {"reward": "qwen2_5_32b_awq"}
    mpo = find_reported("mpo/essay", "elo", {"method": "mpo", "method.refine_schedule": None, **rated})
    initial, expert = (
        mpo - find_reported("mpo/essay", "elo", {"method": "ppo", "method.rubric": rubric, **rated})
        for rubric in ("initial", "expert")
    )
    text = " ".join((PAPERS / "mpo.md").read_text().split())
    assert f"it is {initial:.0f} over the initial rubric, and {expert:.0f} over the best fixed one" in text


@pytest.mark.parametrize("page", ROWS)
def test_the_last_row_of_costs_is_the_total_of_the_others(page: str) -> None:
    def read(cell: str) -> float:
        number, *unit = cell.removeprefix("at least ").replace("unknown", "0").split("\xa0")
        return float(number) * {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}["".join(unit)]

    rows = [line.strip("| ").split(" | ")[2:] for line in read_table(page, "costs").splitlines()[2:-1]]
    (total,) = re.findall(r"^\| \*\*all of them\*\* \| \| (.*) \|$", read_table(page, "costs"), re.MULTILINE)
    runs, *figures = total.split(" | ")
    counts = [[int(count.split()[0]) for count in row[0].split(" + ")] for row in rows]
    assert runs == describe_counts(sum(own for own, *_ in counts), sum(sum(rest) for _, *rest in counts))
    for column, figure in enumerate(figures, start=1):
        assert read(figure) == pytest.approx(sum(read(row[column]) for row in rows), rel=0.02)
    assert figures[-1].startswith("at least") == any(row[-1].startswith(("at least", "unknown")) for row in rows)


def _cost_rows() -> list[Any]:
    """Return the rows of all pages; composing takes a minute: all but one of a page are for `make test-all`."""
    quick = ("duel_evolve/figure2", "espl/figure15", "lyria/fitness", "mpo/overhead")

    def marks(command: str) -> Any:
        if command.startswith(quick[0]):
            return []
        return pytest.mark.nightly if command.startswith(quick) else pytest.mark.all_pairs

    return [pytest.param(page, *row, marks=marks(row[1]), id=row[1]) for page, rows in ROWS.items() for row in rows]


@pytest.mark.parametrize(("page", "title", "command"), _cost_rows())
def test_pages_have_the_estimated_costs(page: str, title: str, command: str) -> None:
    assert make_cost_row(title, command) in read_table(page, "costs")
