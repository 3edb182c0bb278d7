"""Squeeze-Evolve and runs with several generators: routing, calls and costs by model."""

from collections import Counter
from itertools import permutations
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from building import composed, make_budget, make_method, simulated_run
from evorun.cli.overrides import words
from evorun.errors import ConfigError
from evorun.methods.search.squeeze_evolve import SqueezeEvolve, count_groups, draw_weighted, route
from evorun.reports.html import render_report
from evorun.runner.estimates import count_calls
from evorun.runner.plans import make_plan
from evorun.runner.served import role_warnings
from evorun.runner.settings import check
from evorun.testing.runs import COMPLETED, Run
from method_fixture import Ask, Scripted, drive
from warm_process import no_figures

SIZES = ("method.population=8", "method.groups=6", "method.steps=4", "task=mathbench", "task.source=sample")
PRICES = """models:
  large: {prompt: 2.0, completion: 8.0, date: 2026-11-01, source: ours}
  small: {prompt: 0.1, completion: 0.4, date: 2026-11-01, source: ours}
"""


def squeeze(**config: object) -> SqueezeEvolve:
    return make_method("squeeze_evolve", **{"population": 6, "groups": 5, "subset": 3, "steps": 4, **config})


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("prices") / "prices.yaml"
    file.write_text(PRICES)
    return f"prices={file}"


def pair(prices: str, small: float = 0.3, large: float = 0.6) -> tuple[str, ...]:
    """Return the settings of a small and a large simulated model, both with a price."""
    return (
        *("engine=simulated", f"engine.skill={large}", "engine.priced=true", prices, "model=api", "model.id=large"),
        "generator=[{name:api,id:small},policy]",
        f"generator_engine=[{{name:simulated,skill:{small},priced:true}},policy]",
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, prices: str) -> Run:
    folder = tmp_path_factory.mktemp("squeeze") / "run"
    run = simulated_run(folder, "method=squeeze_evolve", *SIZES, "task.limit=4", *pair(prices))
    assert run.outcome == COMPLETED
    return run


@pytest.mark.nightly
def test_with_one_model_it_is_rsa_to_the_byte(tmp_path: Path) -> None:
    sizes = ("task=mathbench", "task.source=sample", "task.limit=4", "method.population=6", "method.steps=4")
    alike = (*sizes, "method.subset=3", "method.temperature=0.7", "method.top_p=0.8")
    ours = simulated_run(tmp_path / "ours", "method=squeeze_evolve", *alike, "method.groups=6")
    theirs = simulated_run(tmp_path / "theirs", "method=rsa", *alike)
    assert ours.calls() == theirs.calls()
    for name in ("steps", "candidates", "predictions", "metrics"):
        assert (ours.path / f"{name}.jsonl").read_bytes() == (theirs.path / f"{name}.jsonl").read_bytes()


def test_each_model_is_asked_under_its_own_role_and_its_cost_has_its_name(run: Run, prices: str) -> None:
    asked = Counter((key.split("|")[1], key.split("|")[2]) for key in run.calls())
    first, later = asked.pop(("0", "generate.1")), asked
    assert first == 4 * 8
    assert later == {(str(step), role): 4 * 3 for step in (1, 2, 3) for role in ("generate.0", "generate.1")}
    results, manifest = run.json("results.json"), run.json("manifest.json")
    assert {role: model["id"] for role, model in manifest["models"].items()} == {
        "policy": "large", "generator.0": "small", "generator.1": "large"
    }  # fmt: skip
    assert (manifest["answered_by"]["generate.0"], manifest["answered_by"]["generate.1"]) == ("small", "large")
    by_model = results["cost_by_model"]
    for name, prompt, completion in (("small", 0.1, 0.4), ("large", 2.0, 8.0)):
        cost = by_model[name]
        paid = (prompt * cost["prompt_tokens"] + completion * cost["completion_tokens"]) / 1e6
        assert cost["price"] == pytest.approx(paid)
    assert sum(cost["price"] for cost in by_model.values()) == pytest.approx(results["cost"]["total"]["price"])
    with no_figures():
        page = render_report(run.path)
    assert "<td>small</td>" in page


def test_the_calls_are_those_of_the_closed_form_and_of_the_plan(run: Run, prices: str, tmp_path: Path) -> None:
    config = composed("method=squeeze_evolve", *SIZES, "task.limit=4", *pair(prices))
    counted = Counter[str]()
    for part in count_calls(config, 4):
        counted[part.role] += int(part.calls)
    assert counted == Counter(key.split("|")[2] for key in run.calls())
    plan = make_plan([config], tmp_path)
    assert {(role.role, role.model, role.calls) for role in plan.arms[0].roles} == {
        ("generate.0", "simulated small", 36), ("generate.1", "simulated large", 68)
    }  # fmt: skip


@pytest.mark.parametrize("groups", [1, 5, 16])
def test_groups_without_ties_are_routed_by_percentiles_as_numpy_has_them(groups: int) -> None:
    rng = np.random.default_rng(groups)
    for percentiles in ([50.0], [20.0, 90.0], [0.0], [100.0], []):
        fitnesses = rng.normal(size=groups).tolist()
        thresholds = np.percentile(fitnesses, percentiles) if percentiles else np.array([])
        expected = [len(percentiles) - sum(fitness > cut for cut in thresholds) for fitness in fitnesses]
        found = route(fitnesses, percentiles, rng)
        assert found == expected
        assert [found.count(model) for model in range(len(percentiles) + 1)] == count_groups(groups, percentiles)
        tied = route([1.0] * groups, percentiles, rng)
        assert sorted(tied) == sorted(found)


async def test_groups_that_disagree_go_to_the_dearest_model(tmp_path: Path) -> None:
    models = [Scripted(lambda ask: f"answer {ask.index % 5}") for _ in range(2)]
    method = squeeze(population=9, groups=8)
    others = {f"generator.{number}": model for number, model in enumerate(models)}
    await drive(method, tmp_path, lambda ask: "?", problems=2, others=others)
    asked = [Counter((ask.name, ask.step) for ask in model.asked) for model in models]
    later = [(name, step) for name in ("p0", "p1") for step in (1, 2, 3)]
    assert [[counts[place] for place in later] for counts in asked] == [[4] * 6, [4] * 6]
    answers = [
        {place: [len(set(_shown(ask))) for ask in model.asked if (ask.name, ask.step) == place] for place in later}
        for model in models
    ]
    assert all(max(answers[0][place]) <= min(answers[1][place]) for place in later)
    assert any(max(answers[0][place]) < max(answers[1][place]) for place in later)


def _shown(ask: Ask) -> list[str]:
    return [one["answer"] for one in ask.shown["candidates"]]


@pytest.mark.parametrize("lite", ["majority", "random"])
async def test_settled_groups_cost_no_call_and_give_an_answer_of_theirs(tmp_path: Path, lite: str) -> None:
    method = squeeze(population=9, groups=8, lite_fraction=0.5, update="accumulate", lite=lite)
    driven = await drive(method, tmp_path, lambda ask: f"answer {ask.index % 3}", problems=1)
    assert Counter(ask.step for ask in driven.model.asked) == {0: 9, 1: 4, 2: 4, 3: 4}
    candidates = {record["id"]: record for record in driven.records("candidates")}
    settled = [record for record in candidates.values() if record["operator"] == "settle"]
    assert len(settled) == 3 * 4
    assert all((record["attempts"], record["call"]) == (0, None) for record in settled)
    votes = [Counter(candidates[parent]["answer"] for parent in record["parents"]) for record in settled]
    most = [count[record["answer"]] == max(count.values()) for record, count in zip(settled, votes, strict=True)]
    assert all(count[record["answer"]] for record, count in zip(settled, votes, strict=True))
    assert all(most) == (lite == "majority")
    assert [record["pool"] for record in driven.records("steps")] == [9, 17, 25, 33]


async def test_a_budget_buys_whole_steps(tmp_path: Path) -> None:
    method = squeeze(steps=None)
    driven = await drive(method, tmp_path, lambda ask: "x", problems=1, budget=make_budget(calls_per_problem=20))
    assert len(driven.model.asked) == 6 + 2 * 5
    assert method.warnings(11) == []
    assert method.warnings(10)[0].endswith(
        "expected at least 11; lower method.population and method.groups, or raise the budget"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["generator=[gemma3_4b,gpt_4o]"], r"generator: expected the policy among the generators, .*\[NAME,policy\]"),
        (["generator=[gemma3_4b]"], r"generator: expected two or more members, generator=\[NAME"),
        (["generator=[gema3_4b,policy]"], r"generator=gema3_4b: unknown generator; did you mean generator=gemma3_4b"),
        (["generator=[gemma3_4b,policy]", "method.percentiles=[30,60]"], r"method.percentiles: expected 1 rising "),
        (
            ["generator=[gemma3_4b,policy]", "task=essay", "method.choose=uniform"],
            r"method.fitness=diversity counts ",
        ),
        (
            ["method=duel_evolve", "+generator=policy", "++generator.name=api", "++generator.id=x"],
            r"generator: has no effect",
        ),
    ],
)
def test_wrong_generators_are_one_line(arguments: list[str], expected: str) -> None:
    method = [] if arguments[0].startswith("method=") else ["method=squeeze_evolve"]
    with pytest.raises(ConfigError, match=f"^{expected}"):
        check(composed("engine=simulated", *method, *arguments))


def test_weighted_selection_draws_by_the_softmax_of_those_that_are_left() -> None:
    logits, rng = [0.0, 1.0, -0.5, 0.3], np.random.default_rng(1)
    drawn = Counter(tuple(draw_weighted(logits, 2, rng)) for _ in range(5_000))
    weights = np.exp(logits)
    for first, second in permutations(range(4), 2):
        chance = weights[first] / weights.sum() * weights[second] / (weights.sum() - weights[first])
        assert drawn[first, second] / 5_000 == pytest.approx(chance, abs=5 * (chance / 5_000) ** 0.5)
    assert sorted(draw_weighted([1e6, 0.0, -1e6], 3, rng)) == [0, 1, 2]


def test_confident_groups_go_to_the_cheap_model(tmp_path: Path, prices: str) -> None:
    confident = ("method.fitness=confidence", "method.selection=weighted", "method.zeta=5", "task.limit=4")
    run = simulated_run(tmp_path / "run", "method=squeeze_evolve", *SIZES, *confident, *pair(prices))
    assert run.outcome == COMPLETED
    candidates = {(record["problem"], record["id"]): record for record in run.records("candidates")}
    means: dict[tuple[str, int], dict[str, list[float]]] = {}
    for (problem, _), record in candidates.items():
        if record["parents"]:
            role = record["call"].split("|")[2]
            shown = [candidates[problem, parent]["confidence"] for parent in record["parents"]]
            means.setdefault((problem, record["generation"]), {}).setdefault(role, []).append(fmean(shown))
    assert len(means) == 4 * 3
    assert all(min(found["generate.0"]) >= max(found["generate.1"]) for found in means.values())
    with pytest.raises(ConfigError, match=r"^method.selection=weighted: expected method.fitness=confidence"):
        squeeze(selection="weighted")


def test_a_model_that_is_listed_twice_is_said_to_be_one() -> None:
    run = check(composed("engine=simulated", "method=squeeze_evolve", "generator=[policy,policy]"))
    assert role_warnings(run.others, run.method, run.task)[0].endswith(
        "is listed 2 times with one engine: it is one model"
    )


def test_generators_in_brackets_are_a_panel() -> None:
    assert words("generator=[a,policy]") == ["generator=panel", "++generator.members=[a,policy]"]
    assert words("generator_engine=[server,policy]") == [
        "generator_engine=panel",
        "++generator_engine.members=[server,policy]",
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(("large", "wins"), [(0.55, True), (0.3, False)])
def test_it_pays_where_the_dear_model_is_better_and_not_where_it_is_only_dearer(
    tmp_path: Path, prices: str, large: float, wins: bool
) -> None:
    """The other arm is rsa with the small model alone, at the same number of calls."""
    sizes = ("task=mathbench", "task.source=sample", "task.limit=30", "method.population=8", "method.steps=3")
    both = simulated_run(
        tmp_path / "both", "method=squeeze_evolve", *sizes, "method.groups=8", *pair(prices, 0.3, large)
    )
    alone = simulated_run(tmp_path / "alone", "method=rsa", *sizes, "engine.skill=0.3")
    accuracy = [run.json("results.json")["metrics"]["accuracy"]["value"] for run in (both, alone)]
    assert (accuracy[0] > accuracy[1] + 0.1) == wins
