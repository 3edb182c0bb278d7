"""Few-shot: worked examples of the validation split, the same ones for all problems."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from building import make_budget, make_method
from evorun.cli.plain import with_absolute_paths
from evorun.errors import ConfigError, DataError
from evorun.methods.search.chain_of_thought import FewShot
from evorun.runs.budget import BudgetConfig
from method_fixture import TOKENS, Ask, Driven, Scripted, drive, solve


def few(**config: object) -> FewShot:
    return make_method("few_shot", **{"shots": 3, "retries": 0, **config})


def always_right(ask: Ask) -> str:
    return "right"


def shown(driven: Driven) -> list[list[Any]]:
    """Return the demonstrations that all problems were shown."""
    prompts = [ask.shown["demonstrations"] for ask in driven.model.of("generate")]
    assert len(prompts) >= 1
    assert all(prompt == prompts[0] for prompt in prompts)
    return list(prompts[0])


async def test_all_problems_see_the_same_examples_with_their_reasoning(tmp_path: Path) -> None:
    driven = await drive(few(), tmp_path, always_right, problems=4)
    assert len(shown(driven)) == 3
    assert all([answer, why] == ["right", "because of right"] for _, answer, why in shown(driven))
    assert {name for name, *_ in shown(driven)} < {f"v{i}" for i in range(8)}
    assert [ask.name for ask in driven.model.of("generate")] == ["p0", "p1", "p2", "p3"]
    assert [[d["problem"]["id"], d["answer"], d["reasoning"]] for d in driven.artifact("demonstrations.json")] == shown(
        driven
    )


async def test_the_draw_is_a_function_of_the_seed(tmp_path: Path) -> None:
    async def drawn(seed: int, folder: str, **how: Any) -> tuple[str, ...]:
        driven = await drive(few(), tmp_path / folder, always_right, seed=seed, **how)
        return tuple(name for name, *_ in shown(driven))

    base = await drawn(0, "a")
    # neither the run's problems nor how many are in flight have a part in it
    assert base == await drawn(0, "b", problems=1, concurrency=1)
    assert len({await drawn(seed, f"seed {seed}") for seed in range(12)}) > 6


async def test_of_a_large_split_no_more_are_worked_than_it_takes(tmp_path: Path) -> None:
    tried: list[str] = []

    def script(ask: Ask) -> str:
        if ask.role == "demonstrate":
            tried.append(ask.shown["problem"])
        return "right" if ask.role == "generate" or tried.index(ask.shown["problem"]) % 3 == 1 else "wrong"

    driven = await drive(few(), tmp_path, script, validation=60)
    assert len(shown(driven)) == 3
    assert len(tried) == 9


async def test_only_correct_responses_become_examples(tmp_path: Path) -> None:
    wrong = {"v0": "wrong", "v1": "?", "v2": None, "v3": "nearly right"}

    def script(ask: Ask) -> str | None:
        return "right" if ask.role == "generate" else wrong.get(ask.shown["problem"], "right")

    driven = await drive(few(shots=4, tries=2), tmp_path, script)
    assert {name for name, *_ in shown(driven)} == {"v4", "v5", "v6", "v7"}


async def test_an_example_is_tried_again_until_it_is_right(tmp_path: Path) -> None:
    def script(ask: Ask) -> str:
        late = ask.role == "demonstrate" and ask.shown["problem"] in ("v0", "v5") and ask.attempt < 2
        return "wrong" if late else "right"

    driven = await drive(few(shots=8, tries=3), tmp_path, script)
    assert len(shown(driven)) == 8
    tried = [(ask.shown["problem"], ask.attempt) for ask in driven.model.of("demonstrate")]
    assert sorted(tried) == sorted([(f"v{i}", 0) for i in range(8)] + [(v, n) for v in ("v0", "v5") for n in (1, 2)])
    assert len({ask.request.seed for ask in driven.model.asked}) == len(driven.model.asked)


async def test_it_stops_trying_once_there_are_enough(tmp_path: Path) -> None:
    def script(ask: Ask) -> str:
        return "wrong" if ask.role == "demonstrate" and ask.shown["problem"] in ("v0", "v5") else "right"

    driven = await drive(few(shots=6, tries=9), tmp_path, script)
    assert {ask.attempt for ask in driven.model.of("demonstrate")} == {0}


async def test_no_more_are_worked_than_needed(tmp_path: Path) -> None:
    everything = await drive(few(shots=8), tmp_path / "all", always_right)
    order = [name for name, *_ in shown(everything)]
    driven = await drive(few(), tmp_path / "three", always_right)
    assert [ask.shown["problem"] for ask in driven.model.of("demonstrate")] == order[:3]


async def test_the_first_in_the_draw_are_kept_however_late_they_were_worked(tmp_path: Path) -> None:
    everything = await drive(few(shots=8), tmp_path / "all", always_right)
    order = [name for name, *_ in shown(everything)]

    def script(ask: Ask) -> str:
        early = ask.role != "demonstrate" or ask.attempt > 0 or ask.shown["problem"] in order[5:7]
        return "right" if early else "wrong"

    driven = await drive(few(), tmp_path / "three", script)
    assert [name for name, *_ in shown(driven)] == order[:3]


async def test_fewer_examples_than_wanted_are_said_and_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def script(ask: Ask) -> str:
        return "wrong" if ask.role == "demonstrate" and ask.shown["problem"] != "v2" else "right"

    with caplog.at_level(logging.WARNING):
        driven = await drive(few(tries=2), tmp_path, script)
    assert [name for name, *_ in shown(driven)] == ["v2"]
    assert "solved 1 of 8 examples in 2 tries, expected 3" in caplog.text
    assert all(record["extra"]["demonstrations"] == 1 for record in driven.records("steps"))


async def test_their_cost_is_every_problems_part(tmp_path: Path) -> None:
    driven = await drive(few(shots=5), tmp_path, always_right, problems=3)
    assert driven.cost() == {"demonstrate": 5, "generate": 3}
    assert [p["cost"]["demonstrate"]["calls"] for p in driven.records("predictions")] == [2, 2, 1]


async def test_more_shots_than_examples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^method\.shots: expected a validation split of at least 9 .*it has 8; [^\n]*$"
    ):
        await drive(few(shots=9), tmp_path, always_right)


def write(path: Path, *lines: object) -> str:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return str(path)


def worked(identity: str, response: str = "right") -> dict[str, str]:
    return {"id": identity, "response": response}


async def test_a_file_gives_the_reasoning_without_a_call(tmp_path: Path) -> None:
    file = write(tmp_path / "worked.jsonl", worked("v7"), "", worked("v1"), worked("v4"), worked("p0"), worked("other"))
    driven = await drive(few(demonstrations=file), tmp_path / "run", always_right)
    assert {name for name, *_ in shown(driven)} == {"v1", "v4", "v7"}
    assert driven.cost() == {"generate": 3}


async def test_of_a_larger_file_the_seed_draws(tmp_path: Path) -> None:
    file = write(tmp_path / "worked.jsonl", *(worked(f"v{i}") for i in range(8)))
    backwards = write(tmp_path / "backwards.jsonl", *(worked(f"v{7 - i}") for i in range(8)))
    model_worked = await drive(few(), tmp_path / "model", always_right)
    for number, path in enumerate((file, backwards)):
        driven = await drive(few(demonstrations=path), tmp_path / f"file {number}", always_right)
        assert shown(driven) == shown(model_worked)


@pytest.mark.parametrize(
    ("lines", "error", "expected"),
    [
        ((worked("v1"), worked("v2")), ConfigError, r"expected 3 responses to problems of the val.* found 2; .*v0"),
        ((worked("v1"), worked("v2"), worked("v3", "wrong")), ConfigError, r"3 correct resp.* found 2; .*v0"),
        ((worked("v1"), worked("v2"), worked("v3", "?")), ConfigError, r"3 correct resp.* found 2"),
        ((worked("v1"), worked("v2"), worked("p0")), ConfigError, r"3 responses .* found 2"),
        (
            (worked("v1"), "", worked("v2"), worked("v1", "wrong")),
            DataError,
            r"worked\.jsonl:4: expected distinct ids, got 'v1' as on line 1; ",
        ),
        ((worked("v1"), worked("v2"), worked("v3"), worked("p0"), worked("p0")), DataError, r":5: .*'p0'.*line 4"),
        ((), ConfigError, r"found 0"),
        ((worked("v1"), "{"), DataError, r'worked\.jsonl:2: expected \{"id": "\.\.\.", "response": "\.\.\."\}: '),
        ((worked("v1"), '{"id": 3, "response": "x"}'), DataError, r"worked\.jsonl:2: "),
        ((worked("v1"), '{"id": "v2"}'), DataError, r"worked\.jsonl:2: "),
    ],
)
async def test_a_wrong_file_is_one_line(
    tmp_path: Path, lines: tuple[object, ...], error: type[Exception], expected: str
) -> None:
    file = write(tmp_path / "worked.jsonl", *lines)
    with pytest.raises(error, match=expected) as raised:
        await drive(few(demonstrations=file), tmp_path / "run", always_right)
    assert "\n" not in str(raised.value)


async def test_bytes_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "worked.jsonl").write_bytes(b'{"id": "v1", "response": "\xff\xfe"}\n')
    with pytest.raises(DataError, match=r"worked\.jsonl:1: "):
        await drive(few(demonstrations=str(tmp_path / "worked.jsonl")), tmp_path / "run", always_right)


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"^method\.demonstrations: cannot read "):
        await drive(few(demonstrations=str(tmp_path / name)), tmp_path / "run", always_right)


def test_a_files_path_holds_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"model": {"id": "m"}, "judge": {"id": "m"}, "method": {"demonstrations": "folder/worked.jsonl"}}
    assert with_absolute_paths(config)["method"] == {"demonstrations": str(tmp_path / "folder" / "worked.jsonl")}
    assert with_absolute_paths({**config, "method": {"demonstrations": None}})["method"] == {"demonstrations": None}


def never_works(ask: Ask) -> str:
    """A model that would be tried again and again."""
    return "wrong" if ask.role == "demonstrate" else "right"


@pytest.mark.parametrize(
    "budget",
    [
        *(make_budget(calls=calls) for calls in (6, 9, 29)),
        *(make_budget(calls_per_problem=calls) for calls in (2, 5)),
        *(make_budget(tokens=calls * TOKENS) for calls in (6, 9, 29)),
        *(make_budget(tokens_per_problem=calls * TOKENS) for calls in (2, 5)),
        make_budget(calls=14, tokens=9 * TOKENS),
    ],
    ids=str,
)
async def test_the_budget_is_kept_and_every_problem_is_answered(tmp_path: Path, budget: BudgetConfig) -> None:
    driven = await drive(few(tries=99), tmp_path, never_works, problems=3, budget=budget)
    most = min(
        limit
        for limit in (
            budget.calls,
            budget.calls_per_problem and 3 * budget.calls_per_problem,
            budget.tokens and budget.tokens // TOKENS,
            budget.tokens_per_problem and 3 * budget.tokens_per_problem // TOKENS,
        )
        if limit
    )
    assert driven.cost() == {"demonstrate": most - 3, "generate": 3}
    assert len(driven.model.asked) == most
    assert all(prediction["correct"] for prediction in driven.records("predictions"))


@pytest.mark.parametrize(
    ("budget", "left"),
    [(make_budget(calls=5), 2), (make_budget(calls=3), 0), (make_budget(calls_per_problem=1), 0)],
    ids=str,
)
async def test_a_budget_below_examples_and_answers_is_one_line(tmp_path: Path, budget: BudgetConfig, left: int) -> None:
    message = rf"^budget: expected at least 3 calls for the examples \(method\.shots\) .*, got {left}; [^\n]*$"
    with pytest.raises(ConfigError, match=message):
        await drive(few(), tmp_path / "model", always_right, budget=budget)
    assert not list((tmp_path / "model").glob("predictions.jsonl"))
    # a file costs nothing
    file = write(tmp_path / "worked.jsonl", *(worked(f"v{i}") for i in range(3)))
    driven = await drive(few(demonstrations=file), tmp_path / "file", always_right, budget=budget)
    assert driven.cost() == {"generate": 3}


async def test_tokens_that_the_first_examples_eat_up_are_counted(tmp_path: Path) -> None:
    """The cost of a call is known after the first ones only."""
    driven = await drive(few(), tmp_path, always_right, budget=make_budget(tokens=2 * TOKENS))
    assert driven.cost() == {"demonstrate": 3}
    assert [(p["answer"], p["stop"]) for p in driven.records("predictions")] == [(None, "budget")] * 3


async def test_without_preparation_there_are_no_examples() -> None:
    model = Scripted(always_right)
    await solve(few(), model)
    assert model.asked[0].shown["demonstrations"] == []
