"""DeepConf: votes weighed by confidence, thresholds from whole traces, unsure traces ended in the engine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import composed, make_budget, make_method, simulated_run
from evorun.errors import ConfigError, EngineError
from evorun.methods.search.deepconf import DeepConf
from evorun.models import Completion, Reply, Request
from evorun.runner.settings import check
from evorun.tasks.billsum.billsum import BillSum
from method_fixture import Ask, Scripted, drive, solve


def deepconf(**config: object) -> DeepConf:
    small = {"samples": 12, "window": 3, "tail": 2, "bottom": 0.5, "keep": 0.5, "warmup": 4, "batch": 4}
    return make_method("deepconf", **{**small, **config})


def trace(ask: Ask) -> list[float]:
    """Return six confidences: level of the trace by its index, with a dip before the end."""
    level = 4.0 + (5 * ask.index) % 12
    return [level, level + 1, level - 2, level - 1, level + 3, level + 2]


def answer(ask: Ask) -> str:
    return "ab"[ask.index % 3 == 0]


def expected_weight(values: Sequence[float], measure: str) -> float:
    windows = sorted(sum(values[i : i + 3]) / 3 for i in range(4))
    return {
        "mean": sum(values) / 6,
        "tail": sum(values[-2:]) / 2,
        "min_window": windows[0],
        "bottom_window": sum(windows[:2]) / 2,
    }[measure]


@pytest.mark.parametrize("measure", ["mean", "tail", "min_window", "bottom_window"])
@pytest.mark.parametrize("keep", [1.0, 0.3])
async def test_the_surest_traces_vote_with_their_confidence(measure: str, keep: float) -> None:
    model = Scripted(answer, trace)
    (step,) = await solve(deepconf(measure=measure, keep=keep), model)
    assert len(model.asked) == 12
    weights = [expected_weight(trace(ask), measure) for ask in model.asked]
    least = sorted(weights)[12 - round(12 * keep)] if keep < 1 else min(weights)  # 30 % of 12 traces: at least 3.6
    voters = {ask.index for ask, weight in zip(model.asked, weights, strict=True) if weight >= least}
    by_id = {int(candidate.id.partition(".")[2]): candidate for candidate in step.candidates}
    assert {index for index, candidate in by_id.items() if candidate.survivor} == voters
    assert [by_id[i].confidence for i in range(12)] == pytest.approx(weights)
    votes = Counter[str]()
    for ask, weight in zip(model.asked, weights, strict=True):
        votes[answer(ask)] += weight * (ask.index in voters)
    assert step.best is not None
    assert step.best.answer == max(votes, key=lambda name: votes[name])
    assert step.best.mean == pytest.approx(max(votes.values()) / votes.total())
    assert step.best.confidence == max(weights[i] for i in voters if by_id[i].answer == step.best.answer)


async def test_online_the_engine_ends_traces_below_the_warm_ups_threshold() -> None:
    model = Scripted(answer, trace)
    history = await solve(deepconf(mode="online", agreement=None, measure="min_window", keep=0.7), model)
    lowest = [expected_weight(trace(ask), "min_window") for ask in model.asked]
    threshold = float(np.percentile(lowest[:4], 30))
    asked: list[Any] = [ask.request.sampling.confidence for ask in model.asked]
    assert [confidence.minimum for confidence in asked] == [None] * 4 + [pytest.approx(threshold)] * 8
    assert {(confidence.top, confidence.window, confidence.tokens) for confidence in asked} == {(20, 3, True)}
    assert [step.step for step in history] == [0, 1, 2]
    assert {step.extra["threshold"] for step in history} == {threshold}
    last = {int(candidate.id.partition(".")[2]): candidate for candidate in history[-1].candidates}
    for index, confidence in enumerate(lowest):
        assert last[index].survivor == (confidence >= threshold)
        # A whole trace below the threshold has an answer without a vote; an ended one has none.
        assert (last[index].answer is None) == (index >= 4 and confidence < threshold)
        assert last[index].attempts == 1
    ended = [index for index in range(4, 12) if lowest[index] < threshold]
    assert sum(step.extra.get("unsure_texts", 0) for step in history) == len(ended) > 0
    # Six tokens each in the warm-up; an ended trace has fewer.
    drawn = {ask.index: _first_end(trace(ask), threshold) for ask in model.asked[4:]}
    saved = sum(step.extra.get("saved_tokens", 0) for step in history)
    assert saved == pytest.approx(sum(6 - tokens for tokens in drawn.values()))


def _first_end(values: Sequence[float], threshold: float) -> int:
    ends = [i + 3 for i in range(len(values) - 2) if sum(values[i : i + 3]) / 3 < threshold]
    return ends[0] if ends else len(values)


async def test_agreement_of_the_whole_traces_ends_a_problem() -> None:
    model = Scripted(lambda ask: "same" if ask.index != 1 else "other", lambda ask: [10.0] * 6)
    stopped = await solve(deepconf(mode="online", agreement=0.8, samples=40), model)
    # After 4 traces 3 of 4 agree, after 8 of them 7 of 8.
    assert [round(step.extra["agreement"], 3) for step in stopped] == [0.75, 0.875]
    assert len(model.asked) == 8
    assert [step.extra["saved_calls"] for step in stopped] == [0, 32]
    assert stopped[-1].extra["saved_tokens"] == 32 * 6
    again = Scripted(model.script, lambda ask: [10.0] * 6)
    await solve(deepconf(mode="online", agreement=None, samples=40), again)
    assert len(again.asked) == 40


async def test_where_no_trace_is_above_the_threshold_all_whole_ones_vote() -> None:
    def drops(ask: Ask) -> list[float]:
        return [20.0] * 6 if ask.index < 4 else [1.0] * 6

    model = Scripted(lambda ask: "?" if ask.index < 4 else "a", drops)
    history = await solve(deepconf(mode="online", agreement=None), model)
    assert history[-1].best is None  # the warm-up did not parse, and all others were ended
    sparse = Scripted(lambda ask: "?" if ask.index in (1, 2, 3) else "a", lambda ask: [20.0 + ask.index] * 6)
    history = await solve(deepconf(mode="online", agreement=None, samples=4, keep=0.1), sparse)
    assert history[-1].best is not None
    assert history[-1].best.id == "0.0"


async def test_a_budget_decides_the_number_of_traces(tmp_path: Path) -> None:
    for mode, asked in (("offline", 9), ("online", 9)):
        method = deepconf(samples=None, mode=mode, agreement=None)
        driven = await drive(method, tmp_path / mode, answer, problems=2, budget=make_budget(calls_per_problem=9))
        assert Counter(ask.name for ask in driven.model.asked) == {"p0": asked, "p1": asked}


async def test_an_engine_without_confidences_ends_the_run_in_one_line() -> None:
    class Silent(Scripted):
        async def complete(self, key: str, request: Request, step: int) -> Reply:
            done = Completion(text="a", finish_reason="stop", tokens=1)
            return Reply(completions=(done,), prompt_tokens=1, seconds=0.0)

    with pytest.raises(EngineError, match="the engine gave no confidences"):
        await solve(deepconf(), Silent(answer))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("engine=server", "method.mode=online"), "engine=server: cannot end a completion"),
        (("engine=vllm", "engine.logprobs=processed"), r"engine\.logprobs: expected raw"),
        (("engine=simulated", "method.keep=0"), r"method\.keep: expected a share above 0"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_composed(words: Sequence[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check(composed("method=deepconf", "task=arithmetic", *words))
    assert "\n" not in str(caught.value)


def test_an_engine_that_it_shares_with_no_other_gives_raw_log_probabilities() -> None:
    assert check(composed("method=deepconf", "task=arithmetic", "engine=vllm")).engine.logprobs == "raw"  # type: ignore[attr-defined]
    assert check(composed("method=rsa", "task=arithmetic", "engine=vllm")).engine.logprobs is None  # type: ignore[attr-defined]


def test_settings_without_effect_are_said_beforehand() -> None:
    assert deepconf(mode="online").warnings(None) == []
    [line] = deepconf(mode="online", window=5000, max_tokens=4000).warnings(None)
    assert "the engine ends none early" in line
    [line] = deepconf(mode="online", samples=4).warnings(None)
    assert "leaves no trace to end early within 4" in line
    assert "no two texts of task=billsum" in str(deepconf().incompatibility(BillSum))


WORLD = ("task=mathbench", "task.source=sample", "task.limit=10", "engine.skill=0.4", "engine.typical_mistake=0.8")
ARMS: Mapping[str, Sequence[str]] = {
    "vote": ("method=self_consistency", "method.retries=0"),
    "offline": ("method=deepconf",),
    "online": ("method=deepconf", "method.mode=online", "method.window=32", "method.agreement=null"),
}


def arm(folder: Path, name: str, skill: float) -> float:
    run = simulated_run(
        folder / f"{name}{skill}", *ARMS[name], *WORLD, "method.samples=40", f"engine.confidence_skill={skill}"
    )
    results = run.json("results.json")
    assert results["cost"]["total"]["calls"] == 40 * 10
    accuracy: float = results["metrics"]["accuracy"]["value"]
    return accuracy


@pytest.fixture(scope="module")
def vote(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Accuracy of a vote of as many traces, without confidences."""
    return arm(tmp_path_factory.mktemp("vote"), "vote", 0.5)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["offline", "online"])
def test_it_wins_or_loses_with_what_confidences_tell(tmp_path: Path, mode: str, vote: float) -> None:
    """A problem's typical mistake is more frequent than its right answer, so that the plain vote is often wrong."""
    informed, misled = arm(tmp_path, mode, 0.9), arm(tmp_path, mode, 0.2)
    assert informed > vote + 0.2
    assert misled < min(vote + 0.05, informed - 0.2)
