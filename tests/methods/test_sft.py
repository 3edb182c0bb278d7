"""Method `sft`: its loop with a policy that only counts, its data, and what is refused before a run.

Runs of it are killed in test_laft_resumes.py.
"""

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from building import make_budget, make_driver, make_method
from evorun.errors import ConfigError, DataError, RunDirectoryError
from evorun.methods.learning.sft import SftConfig
from evorun.runner.settings import check
from evorun.runs.budget import BudgetConfig
from evorun.runs.directory import RunDirectory
from evorun_process import evorun_here
from method_fixture import Ask, Driven, Scripted, quiz
from test_configs import composed


def write_chats(file: Path, count: int = 12) -> Path:
    chats = [
        [{"role": "user", "content": f"What is {i}+{i}?"}, {"role": "assistant", "content": f"It is {2 * i}."}]
        for i in range(count)
    ]
    file.write_text("".join(json.dumps({"messages": chat, "problem": f"p{i}"}) + "\n" for i, chat in enumerate(chats)))
    return file


class Counting:
    """A policy whose held-out loss falls by 0.1 a step."""

    stopwatch = None

    def __init__(self, **data: float) -> None:
        self.events: list[str] = []
        self.updates = 0
        self._data = {"conversations": 10.0, "held_out": 2.0, "cut": 0.0, "dropped": 0.0, **data}

    async def evaluate(self) -> dict[str, float]:
        self.events.append(f"assess {self.updates}")
        loss = {} if self._data["held_out"] == 0 else {"held_out_loss": 2 - self.updates / 10}
        return {**self._data, **loss}

    async def train_step(self, step: int) -> dict[str, float]:
        self.updates += 1
        self.events.append(f"step {self.updates}")
        return {"loss": 3 - self.updates / 10}

    async def export(self) -> None:
        self.events.append("export")


async def train(folder: Path, policy: Counting, budget: BudgetConfig | None = None, **config: Any) -> Driven:
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240
    steps = {"epochs": 1.0, "batch": 2}  # ten conversations: five
    data = str(write_chats(folder / "chats.jsonl"))
    method = make_method("sft", **{"data": data, "eval_samples": 2, **steps, **config})

    def answer(ask: Ask) -> str:
        policy.events.append(f"answer {ask.step}")
        return "right" if ask.index == 0 else "wrong"

    directory = RunDirectory(folder / "run")
    model = Scripted(answer)
    try:
        driver = make_driver(method, quiz(problems=1), directory, model, budget=budget, policy=policy)
        await driver.run()
    finally:
        directory.close()
    return Driven(folder / "run", model, driver)


async def test_it_assesses_and_evaluates_before_every_so_many_steps_and_at_the_end(tmp_path: Path) -> None:
    policy = Counting()
    driven = await train(tmp_path, policy, eval_every=2)
    events = "assess 0,answer 0,answer 0,answer 0,step 1,step 2,assess 2,answer 2,answer 2,answer 2,step 3,step 4,"
    events += "assess 4,answer 4,answer 4,answer 4,step 5,assess 5,export,answer 5,answer 5,answer 5"
    assert policy.events == events.split(",")
    figures = {record["step"]: record["figures"] for record in driven.records("training")}
    assert (figures[0]["steps"], figures[0]["conversations"]) == (5, 10)
    assert figures[1] == {"loss": 2.9}
    assert figures[4] == {"loss": 2.6, "held_out_loss": 1.6, "held_out_perplexity": pytest.approx(4.953, rel=1e-3)}
    assert [record["step"] for record in driven.records("steps")] == [0, 2, 4, 5]
    assert {ask.request.sampling.temperature for ask in driven.model.asked if ask.index} == {1.0}


async def test_without_held_out_data_no_loss_on_any_is_reported(tmp_path: Path) -> None:
    policy = Counting(held_out=0)
    driven = await train(tmp_path, policy, eval_every=2)
    assert [what for what in policy.events if what.startswith("assess")] == ["assess 0"]
    assert not any("held_out_loss" in record["figures"] for record in driven.records("training"))


async def test_what_is_cut_or_dropped_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await train(tmp_path, Counting(cut=3, dropped=2), max_length=77)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "longer than 77 tokens" in said
    assert said.endswith("conversations that are cut: 3; dropped, since no answer begins in time: 2")


async def test_a_small_budget_is_kept_for_the_last_evaluation(tmp_path: Path) -> None:
    policy = Counting()
    driven = await train(tmp_path, policy, make_budget(calls=9), eval_every=2)
    assert [record["step"] for record in driven.records("steps")] == [0, 2, 5]
    assert policy.updates == 5


def test_the_data_are_copied_into_the_run_and_must_stay_the_same(tmp_path: Path) -> None:
    data = write_chats(tmp_path / "chats.jsonl", 20)
    objective = make_method("sft", data=str(data), epochs=2, batch=4, max_length=9).make_objective(tmp_path / "run")
    assert (objective.epochs, objective.batch, objective.max_length) == (2, 4, 9)
    assert objective.held_out is not None
    parts = [
        [msgspec.json.decode(line) for line in Path(name).read_bytes().splitlines()]
        for name in (objective.train, objective.held_out)
    ]
    assert [len(part) for part in parts] == [18, 2]
    given = [json.loads(line)["messages"] for line in data.read_text().splitlines()]
    assert all(kept["messages"] == given[kept["line"] - 1] for part in parts for kept in part)
    assert (
        make_method("sft", data=str(data), epochs=2, batch=4, max_length=9).make_objective(tmp_path / "run")
        == objective
    )
    write_chats(data, 21)
    with pytest.raises(
        RunDirectoryError, match=r"train.jsonl differs from .*chats.jsonl as it is now; restore that file"
    ):
        make_method("sft", data=str(data)).make_objective(tmp_path / "run")


OTHER: dict[str, Any] = {
    **{"limit": 9, "held_out": 0.3, "epochs": 2.0, "batch": 3, "max_length": 99},
    **{"eval_every": 2, "eval_samples": 1, "eval_temperature": 0.6, "eval_top_p": 0.8, "eval_max_tokens": 33},
}
"""Another value for each field but `data`."""


def told(driven: Driven) -> list[Any]:
    """Return what the trainer is told, its data included, without the folders' names."""
    objective = driven.driver.method.make_objective(driven.folder)  # type: ignore[attr-defined]
    parts = [Path(part).read_bytes() for part in (objective.train, objective.held_out) if part is not None]
    return [parts, objective.epochs, objective.batch, objective.max_length]


@pytest.mark.parametrize("field", sorted({field.name for field in dataclasses.fields(SftConfig)} - {"name", "data"}))
async def test_a_field_changes_what_is_asked_of_the_model_or_the_trainer(tmp_path: Path, field: str) -> None:
    before = await train(tmp_path / "before", Counting())
    after = await train(tmp_path / "after", Counting(), **{field: OTHER[field]})
    assert (before.model.everything(), told(before)) != (after.model.everything(), told(after))


def test_whole_weights_reach_no_engine_that_takes_adapters_alone(tmp_path: Path) -> None:
    words = ("method=sft", f"method.data={write_chats(tmp_path / 'chats.jsonl', 20)}", "task=sudoku", "training=full")
    for engine in ("transformers", "vllm"):
        assert check(composed(*words, f"engine={engine}", "model=smollm2_135m")).training is not None
    with pytest.raises(ConfigError, match=r"^engine=server: takes adapters from the trainer, not whole models"):
        check(composed(*words, "engine=server", "model=smollm2_135m"))


def test_nothing_is_held_out_when_nothing_should_be(tmp_path: Path) -> None:
    objective = make_method("sft", data=str(write_chats(tmp_path / "a")), held_out=0, limit=7).make_objective(
        tmp_path / "run"
    )
    assert objective.held_out is None
    assert len(Path(objective.train).read_bytes().splitlines()) == 7


def test_data_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"^method=sft: method.data: expected a file of conversations, got null; set"):
        check(composed("method=sft", "task=sudoku", "model=smollm2_135m", "engine=transformers"))


def test_empty_answers_are_said_before_the_run(tmp_path: Path) -> None:
    data = write_chats(tmp_path / "a")
    with data.open("a") as file:
        chat = [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": ""}]
        file.write(json.dumps({"messages": chat}) + "\n")
    method = make_method("sft", data=str(data))
    assert method.warnings(None) == [f"{data}: conversations with an empty answer are left out: 1"]
    assert make_method("sft", data=str(write_chats(tmp_path / "b"))).warnings(None) == []


def test_bad_data_are_named_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text('{"messages": [{"role": "user", "content": "Why?"}]}\n')
    with pytest.raises(DataError, match=r"chats.jsonl, line 1: expected an answer of the assistant, got none$"):
        make_method("sft", data=str(tmp_path / "chats.jsonl")).check(None, [])


@pytest.mark.nightly
def test_bad_data_cost_one_line_of_the_program_and_no_run(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text('{"messages": [{"role": "user", "content": "Why?"}]}\n')
    wanted = ("method=sft", "task=sudoku", "engine=transformers", "hydra.run.dir=run")
    refused = evorun_here(*wanted, "method.data=chats.jsonl", cwd=tmp_path)
    assert refused.returncode != 0
    assert refused.stderr == "error: chats.jsonl, line 1: expected an answer of the assistant, got none\n"
    assert not (tmp_path / "run" / "manifest.json").exists()
