"""The data behind the sections on system prompts and rollouts; test_evolution_chromium.py opens them in a browser."""

import base64
import io
import json
import random
import re
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from evolution_fixture import EvolutionSpec, write_evolution
from msgspec import UNSET
from scipy.stats import spearmanr

from evorun.reports.evolution import rollouts as sampling
from evorun.reports.evolution.rollouts import MAX_ROLLOUTS, choose, choose_blamed, load_sample
from evorun.reports.evolution.section import Evolution, load_sections, make_principles_table
from evorun.reports.evolution.tree import assign_lanes, draw_tree
from evorun.reports.figures import RATINGS
from evorun.reports.html import render_report
from evorun.reports.overview import load_curves, load_outcome
from evorun.reports.plots import draw_training
from evorun.reports.population import Population, load_population, load_transplants, summarise_rollouts
from evorun.reports.summary import print_summary
from evorun.reports.text import number
from evorun.reports.training import count_edits, describe_gradient_clipping, is_edit
from evorun.runs.journal_file import JOURNAL, Effect
from evorun.runs.rating_figures import rating_figures
from evorun.runs.reading import read_steps_without_texts, read_training
from evorun.runs.schema import CandidateRecord, MetricPoint, PrincipleEffect, RolloutRecord
from evorun.runs.scores import ACCURACY
from evorun.runs.terminal import Terminal
from journals import write_journal
from run_fixture import RunSpec, write_run

pytestmark = pytest.mark.usefixtures("drawn_figures")


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_evolution(tmp_path_factory.mktemp("espl") / "run")


@pytest.fixture(name="evolution", scope="module")
def _evolution(run: Path, drawing_only: Callable[..., Any]) -> Evolution:
    with drawing_only():
        found = load_sections(run, ACCURACY, "training step").evolution
    assert found is not None
    return found


def _unpacked(content: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(content)))


def test_a_tree_has_room_for_each_leaf_and_keeps_subtrees_together() -> None:
    rng = random.Random(0)
    for _ in range(50):
        parents = [[rng.randrange(i)] if i and rng.random() < 0.9 else [] for i in range(rng.randrange(1, 40))]
        room = [rng.choice((0.5, 1.0)) for _ in parents]
        found = assign_lanes(parents, room)
        children = [[c for c, own in enumerate(parents) if own == [node]] for node in range(len(parents))]

        def leaves(node: int, below: list[list[int]] = children) -> list[int]:
            return [leaf for child in below[node] for leaf in leaves(child)] if below[node] else [node]

        order = sorted((node for node in range(len(parents)) if not children[node]), key=lambda node: found[node])
        for above, below in pairwise(order):
            assert found[below] - found[above] == (room[above] + room[below]) / 2
        for node, own in enumerate(children):
            under = [order.index(leaf) for leaf in leaves(node)]
            assert max(under) - min(under) == len(under) - 1  # nobody else's leaf in between: edges do not cross
            assert not own or found[node] == (found[own[0]] + found[own[-1]]) / 2
    assert assign_lanes([[], *([i] for i in range(3000))], [1.0] * 3001) == [0.5] * 3001  # deeper than Python's stack


def test_the_population_has_its_latest_ratings_and_the_best_is_one_that_is_kept(run: Path) -> None:
    population = load_population(run)
    assert population is not None
    ratings = [json.loads(line) for line in (run / "ratings.jsonl").open()]
    last = {rating["candidate"]: rating for rating in ratings}
    for one in population.members:
        assert (one.mean, one.survivor) == (last[one.id]["mean"], last[one.id]["survivor"])
    kept = [rating for rating in last.values() if rating["survivor"]]
    assert len(kept) == EvolutionSpec().window
    assert population.best is not None
    assert population.members[population.best].id == max(kept, key=lambda rating: rating["mean"])["candidate"]
    first = next(rating for rating in ratings if rating["candidate"] == "0.0" and rating["step"] == 2)
    assert population.rating_at("0.0", 2) == first["mean"]
    assert population.rating_at("5.0", 4) is None


def test_the_first_parent_is_the_one_that_was_edited_and_one_that_comes_later_is_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=1, candidates=1, generations=0))
    own = {"problem": "*", "kind": "rubric", "generation": 0, "operator": "root", "answer": None}
    records = [
        {**own, "id": "a", "text": "one", "parents": ["b", "a", "gone"]},
        {**own, "id": "b", "text": "two\nthree\nfour", "parents": ["a", "a"]},
        {**own, "id": "c", "text": "one\nthree\nfour", "parents": ["a", "b"]},
    ]
    with (run / "candidates.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    population = load_population(run)
    assert population is not None
    assert (population.parents, population.best, population.kinds) == ([[], [0], [1, 0]], None, "rubrics")


def _rollout(index: int, reward: float | None = 1.0, **fields: Any) -> RolloutRecord:
    given = {"step": 1, "problem": "p", "candidate": "a", "call": f"call {index}", "turns": 1, "advantage": None}
    return RolloutRecord(
        index=index,
        reward=reward,
        correct=None,
        finish_reason="stop",
        prompt_tokens=1,
        completion_tokens=1,
        **{**given, **fields},
    )


def test_rewards_are_compared_within_their_steps() -> None:
    rollouts = [
        _rollout(0, 0.0, problem="p"),
        _rollout(1, 1.0, problem="q"),
        _rollout(2, 1.0, candidate="b"),
        _rollout(3, 1.0, candidate="b", step=2),
        _rollout(4, 0.0, candidate="c", step=2),
        _rollout(5, None, candidate="c", step=2),
        _rollout(6, 1.0, candidate=None, step=2),
    ]
    played = summarise_rollouts(rollouts)
    assert {who: (own.rollouts, own.reward.value) for who, own in played.items()} == {
        "a": (2, 0.5),
        "b": (2, 1.0),
        "c": (2, 0.0),
    }
    # step 1: mean 2/3; step 2: mean 1/2 of those under a prompt
    assert played["a"].gain == pytest.approx(0.5 - 2 / 3)
    assert played["b"].gain == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert played["a"].reward.ci95 == (0.0, 1.0)
    assert played["c"].reward.n == 1


def test_a_sample_is_bounded_has_the_blamed_ones_and_each_step_and_prompt() -> None:
    rollouts = [
        _rollout(i, float(i % 5 == 0), step=1 + i // 30, candidate=f"c{i % 3}", call=f"call {i}") for i in range(3000)
    ]
    blamed = choose_blamed(rollouts, [[f"call {i}" for i in range(7, 100)], ["nowhere", "call 2990"]])
    assert [one.index for one in blamed] == [*range(7, 7 + sampling.MAX_BLAMED), 2990]
    chosen = choose(rollouts, blamed)
    assert len(chosen) == MAX_ROLLOUTS == len({one.call for one in chosen})
    assert set(blamed) <= set(chosen)
    assert {(one.step, one.candidate) for one in chosen} == {(one.step, one.candidate) for one in rollouts}
    assert chosen == sorted(chosen, key=lambda one: (one.step, one.index))
    assert choose(rollouts[:9], []) == rollouts[:9]
    # more steps than there is room for: spread over all of them
    many = choose([_rollout(i, step=i) for i in range(1000)], [])
    assert len(many) == MAX_ROLLOUTS
    assert many[-1].step > 990
    # both ends of a group before its middle
    group = [_rollout(i, float(i)) for i in range(1000)]
    assert {0.0, 999.0, 1.0, 998.0} <= {one.reward for one in choose(group, [])}


def test_the_texts_of_rollouts_come_from_the_journal_with_all_turns(tmp_path: Path) -> None:
    shots = [{"role": "user", "content": "shot"}, {"role": "assistant", "content": "SHOT"}]
    turns = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "look"},
        {"role": "tool", "content": "found"},
    ]
    texts = {
        "call 0": (shots, "one turn"),
        "call 1": ([*shots, *turns], "two turns"),
        "call 2": ([], "x" * 9000 + "end"),
    }
    effects = [
        Effect(
            call,
            b"0" * 16,
            json.dumps({"messages": messages, "sampling": {}}).encode(),
            json.dumps({"completions": [{"text": said, "token_ids": [1, 2]}], "seconds": 1}).encode(),
            None,
            1.0,
        )
        for call, (messages, said) in texts.items()
    ]
    refused = json.dumps({"completions": [], "error": "too long"}).encode()
    write_journal(tmp_path / JOURNAL, [*effects, Effect("call 3", b"0" * 16, effects[0].request, refused, None, 1.0)])
    rollouts = [_rollout(i, turns=2 if i == 1 else 1) for i in range(5)]
    sample = load_sample(tmp_path, rollouts, [], {"a": 7})
    shown = [row[11] for row in _unpacked(sample.packed.content)["rollouts"]]
    assert shown[0] == "one turn"
    assert shown[1] == "[assistant]\nlook\n\n[tool]\nfound\n\n[assistant]\ntwo turns"
    assert shown[2] == f"{'x' * 2000}\n… [6,003 characters cut] …\n{'x' * 997}end"
    assert shown[3:] == ["(refused: too long)", None]
    assert (sample.problem, sample.packed.limit, sample.total) == (None, 3000, 5)
    (tmp_path / JOURNAL).unlink()
    without = load_sample(tmp_path, rollouts, [], {"a": 7})
    assert without.problem is not None
    assert JOURNAL in without.problem
    assert [row[2:4] + row[11:12] for row in _unpacked(without.packed.content)["rollouts"]] == [[7, 1.0, None]] * 5


def test_a_page_says_what_a_rollout_was_learned_with_and_never_calls_a_reward_so(tmp_path: Path) -> None:
    rollouts = [
        _rollout(0, advantage=-0.5),
        _rollout(1, 4.0, advantage=0.25, advantage_sd=1.5, penalised_reward=3.0),
        _rollout(2, None),
        _rollout(3, 4.0, advantage=UNSET),
    ]
    sample = load_sample(tmp_path, rollouts, [], {})
    assert [(row[3], row[4], row[14]) for row in _unpacked(sample.packed.content)["rollouts"]] == [
        (1.0, "-0.5", None),
        (4.0, "0.25, the mean of its tokens (standard deviation 1.5)", 3.0),
        (None, "none: nothing was learned from it", None),
        (4.0, None, None),
    ]


@pytest.mark.nightly
def test_a_page_says_that_weights_change_between_steps_where_they_do(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only()
    run = write_evolution(tmp_path / "run", EvolutionSpec(steps=2))
    frozen = render_report(run)
    rollouts = (run / "rollouts.jsonl").read_text()
    (run / "rollouts.jsonl").write_text(rollouts.replace('{"step"', '{"version": 1, "step"'))
    trained = render_report(run)
    assert ["since the weights change" in page for page in (frozen, trained)] == [False, True]
    assert ["steps may have different problems" in page for page in (frozen, trained)] == [True, False]


def test_a_page_of_many_long_rollouts_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_BYTES", 20_000)
    rng = random.Random(0)
    texts = {f"call {i}": "".join(rng.choices("abcdefgh", k=2000)) for i in range(60)}
    monkeypatch.setattr(sampling, "_read_texts", lambda journal, chosen: texts)
    sample = load_sample(tmp_path, [_rollout(i) for i in range(60)], [], {})
    assert len(sample.packed.content) <= 20_000
    assert sample.packed.limit == 300


def test_edits_are_counted_by_kind_and_outcome(run: Path, evolution: Evolution) -> None:
    figures = [json.loads(line)["figures"] for line in (run / "training.jsonl").open()]
    total = {name: sum(one.get(name, 0) for one in figures) for one in figures for name in one if "edits" in name}
    edits = count_edits(read_training(run))
    assert dict(edits.applied) == {"add": total["edits_add"], "modify": total["edits_modify"]}
    assert dict(edits.refused) == {"conflict": total["edits_refused_conflict"]}
    assert edits.proposals == [("not_json", 12)]
    made = [json.loads(line)["operator"] for line in (run / "candidates.jsonl").open() if '"parents": ["' in line]
    assert {row[0]: row[1] for row in evolution.offspring.rows} == {
        name: made.count(name) for name in ("mutation", "crossover")
    }


def _series(**figures: list[float]) -> dict[str, list[MetricPoint]]:
    return {
        name: [MetricPoint(step, name, value, None, 1, 0.0, 0.0) for step, value in enumerate(values)]
        for name, values in figures.items()
    }


def test_clipped_gradients_are_told_with_their_norms_before() -> None:
    told = describe_gradient_clipping(_series(clipped_gradients=[1.0, 0.5], grad_norm=[52.0, 20.0]))
    assert told == (
        "training.max_grad_norm clipped the gradients of 75.0 % of optimiser steps. "
        "Gradient norms before clipping, by training step: median 36.0, 20.0 to 52.0."
    )
    none = describe_gradient_clipping(_series(clipped_gradients=[0.0], grad_norm=[52.0]))
    assert none is not None
    assert none.startswith("No gradient was clipped")
    assert describe_gradient_clipping(_series(grad_norm=[52.0])) is None  # an earlier version's run


def test_ratings_are_held_against_test_scores_of_the_same_step(evolution: Evolution) -> None:
    population = evolution.population
    found = []
    for step in {one.step for one in population.scores}:
        own = [one for one in population.scores if one.step == step]
        ratings = [population.rating_at(one.candidate, step) for one in own]
        found.append(spearmanr(ratings, [one.score for one in own])[0])
    assert evolution.agreement is not None
    assert evolution.agreement.value == pytest.approx(sum(found) / len(found))
    assert evolution.agreement.ci95 is not None
    low, high = evolution.agreement.ci95
    assert low < evolution.agreement.value < high


def test_what_of_the_gain_lies_in_prompt_and_weights(run: Path, tmp_path: Path) -> None:
    population = load_population(run)
    assert population is not None
    assert population.best is not None
    best = population.members[population.best].id
    (tmp_path / "artifacts").mkdir()
    scores = {("0.0", 0): 0.2, ("0.0", 12): 0.5, (best, 0): 0.3, (best, 12): 0.75, ("3.0", 12): 0.4}
    cells = [{"step": step, "candidate": who, "score": score, "n": 64} for (who, step), score in scores.items()]
    path = tmp_path / "artifacts" / "transplant.json"
    path.write_text(json.dumps(cells))
    [matrix] = load_transplants(tmp_path, population)
    assert matrix.gains == pytest.approx((0.1, 0.3, 0.55))
    assert (matrix.prompts[0], matrix.steps, matrix.names["0.0"]) == ("0.0", [0, 12], "0.0 (root)")
    path.write_text(json.dumps([cell for cell in cells if (cell["candidate"], cell["step"]) != (best, 0)]))
    [without] = load_transplants(tmp_path, population)
    assert without.gains is None


def test_a_run_without_such_records_has_none_of_these_sections(tmp_path: Path, draw_only: Callable[..., None]) -> None:
    draw_only()
    run = write_run(tmp_path / "run", RunSpec(problems=1))
    html = render_report(run)
    for section in ("evolution", "rollouts", "transplant", "principles"):
        assert f'id="{section}"' not in html
    assert not any(table.rows for table in load_sections(run, ACCURACY, "step").tables.values())


def test_a_tree_has_an_element_for_each_candidate_and_the_table_a_row(
    run: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("tree")
    sections = load_sections(run, ACCURACY, "step")
    drawn = sections.plots["tree"]
    assert drawn is not None
    found = [one.get("id", "") for one in ElementTree.fromstring(drawn.svg).iter()]
    count = 1 + EvolutionSpec().steps
    assert [name for name in found if name.startswith("prompt-")] == [f"prompt-{i}" for i in range(count)]
    assert len(sections.tables["population"].csv().splitlines()) == 1 + count


@pytest.mark.nightly
def test_names_in_a_tree_cover_no_mark_and_its_axis_goes_beyond_the_last_step() -> None:
    for last in (17, 25):
        # leaves crowd: the best one stands right below another, and so does the latest
        members = [
            CandidateRecord(
                problem="*", kind="system_prompt", id=str(i), generation=step, parents=[], operator="mutation", text="",
                answer=None, mean=mean, sd=1.0, survivor=True,
            )
            for i, (step, mean) in enumerate([(0, 1), *[(2, 2)] * 40, (4, 2), (4, 9), (last, 4), (last, 5)])
        ]  # fmt: skip
        population = Population(members, {}, [], [[], *[[0]] * (len(members) - 1)])
        root = ElementTree.fromstring(draw_tree(population, "training step").svg)
        marks = [
            (float(use.get("x", 0)), float(use.get("y", 0)))
            for group in root.iter("{http://www.w3.org/2000/svg}g")
            if group.get("id", "").startswith("prompt-")
            for use in group.iter("{http://www.w3.org/2000/svg}use")
        ]
        boxes = []
        texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
        for text in texts:
            if text.text in ("best", "latest"):
                wide = 5 * len(text.text)
                anchor = re.search(r"text-anchor: (\w+)", text.get("style", ""))
                shift = {"start": 0, "middle": wide / 2, "end": wide}[anchor[1] if anchor else "start"]
                left, base = float(text.get("x", 0)) - shift, float(text.get("y", 0))
                boxes.append((left, base - 8, left + wide, base))
        assert len(boxes) == 2
        for left, high, right, low in boxes:  # downwards, as SVG has it
            assert not [(x, y) for x, y in marks if left - 4 < x < right + 4 and high - 3 < y < low + 3]
        ticks = [group for group in root.iter("{http://www.w3.org/2000/svg}g") if "xtick" in group.get("id", "")]
        assert max(int("".join(tick.itertext())) for tick in ticks) >= last


def test_figures_of_training_have_names_that_say_what_they_are_and_edits_are_none(run: Path) -> None:
    curves = load_curves(load_outcome(run), read_steps_without_texts(run))
    drawn = draw_training({name: points for name, points in curves.training.items() if not is_edit(name)})
    assert drawn is not None
    assert "sampler KL (nats per token)" in drawn.svg
    assert "clipped tokens (share)" in drawn.svg
    assert "edits" not in drawn.svg
    assert "proposals" not in drawn.svg


def test_a_page_and_a_terminal_have_all_three_figures_on_ratings(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only()
    run = write_evolution(tmp_path / "run")
    results = json.loads((run / "results.json").read_bytes())
    results["metrics"] |= msgspec.to_builtins(rating_figures(run))
    (run / "results.json").write_text(json.dumps(results))
    terminal = io.StringIO()
    print_summary(run, Terminal(file=terminal, width=200))
    for shown in (render_report(run), terminal.getvalue()):
        for name, (words, _) in RATINGS.items():
            assert words.lower() in shown.lower()
            assert number(results["metrics"][name]["value"]) in shown


def test_the_texts_of_principles_are_folded_in_a_pipe_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    principles = [
        PrincipleEffect(principle=words, effect=0.1, low=None, high=None, n=3) for words in ("sum " * 60, "b")
    ]
    printed = io.StringIO()
    Terminal(file=printed).print_table(make_principles_table(principles, ACCURACY).to_rich())
    assert max(map(len, printed.getvalue().splitlines())) <= 80 + len("  effect     95 % interval   n ") + 4
    assert printed.getvalue().count("sum") == 60
