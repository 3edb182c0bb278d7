"""Weights that begin anew with each problem: TTT-Discover trains a random model, and is the same after a kill."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import parity_task
import pytest
from parity_task import (
    EMBEDDED,
    NO_TOKENIZER,
    Parity,
    adapter_of,
    carry_out,
    effects,
    finished,
    is_right,
    lines,
    records,
    same_tensors,
    write_model,
)

from evorun.runs.candidates import Feedback, Response
from evorun.tasks.base import Problem, Prompt, Tools
from evorun.training.process import TrainerProcess
from evorun.training.wire import Job, Train

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.nightly,  # test_policy.py restarts a policy, and methods/test_ttt_discover.py resumes, without weights
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]

METHOD = {"name": "ttt_discover", "steps": 2, "states": 2, "group": 4, "buffer": 9, "max_tokens": 12}


async def observe(self: Parity, problem: Problem, response: Response, tools: Tools) -> Response:
    """Score a text by its length, and by its number of letters being even."""
    score = (len(response.text) % 50 + 50 * is_right(response.text)) / 100
    return msgspec.structs.replace(response, feedback=Feedback(text=f"{score}", score=score))


def evolution_prompt(self: Parity, problem: Problem, parents: Any) -> Prompt:
    return self.instructed_prompt(problem, parents[0].response.text[:40] or "Say something.")


def test_each_problem_begins_from_the_untrained_weights_also_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Parity, "observe", observe, raising=False)
    monkeypatch.setattr(Parity, "evolution_prompt", evolution_prompt, raising=False)
    monkeypatch.setattr(Parity, "signature", lambda self, problem, response: response.text, raising=False)
    words = [word for word in parity_task.SMALL if "problems_per_step" not in word and "method.eval" not in word]
    monkeypatch.setattr(parity_task, "SMALL", words)
    settings: dict[str, Any] = {"method": METHOD, "training": {"save_every": 1, "keep": 9, "learning_rate": 0.01}}
    model, started = write_model(tmp_path / "model"), list[Job]()
    start = TrainerProcess.start

    async def starting(job: Job, log: Path) -> TrainerProcess:
        started.append(job)
        return await start(job, log)

    monkeypatch.setattr(TrainerProcess, "start", starting)
    whole = finished(tmp_path / "whole", model, **settings)
    assert [(job.checkpoint, job.updates) for job in started] == [(None, 0), (None, 3)]
    figures = [line["figures"] for line in lines(whole / "training.jsonl")]
    assert [line["step"] for line in lines(whole / "training.jsonl")] == [1, 2, 4, 5]
    # Completions come from the weights that learn from them, and these have no momentum of the problem before.
    assert max(one["sampler_kl"] for one in figures) == pytest.approx(0, abs=1e-6)
    rollouts = lines(whole / "rollouts.jsonl")
    assert {(line["step"], line["version"]) for line in rollouts} == {(1, 0), (2, 1), (4, 3), (5, 4)}
    first = adapter_of(whole / "checkpoints" / "update-1")
    fourth = adapter_of(whole / "checkpoints" / "update-4")
    assert not same_tensors(first, fourth)  # other problems
    moved = [float(abs(tensor).max()) for name, tensor in fourth.items() if "lora_B" in name]
    assert max(moved) == pytest.approx(0.01, rel=1e-3)  # one step of Adam from 0

    ask, stopped = TrainerProcess.ask, tmp_path / "stopped"

    async def dying(self: TrainerProcess, command: Any) -> Any:
        asked = asyncio.ensure_future(ask(self, command))
        if isinstance(command, Train) and command.number == 4:
            await asyncio.sleep(0)  # it is on its way to the trainer
            self._process.kill()
        return await asked

    with monkeypatch.context() as patch:
        patch.setattr(TrainerProcess, "ask", dying)
        assert carry_out(stopped, model, **settings).status == "failed"
    finished(stopped, model, **settings)
    assert records(stopped) == records(whole)
    assert {key: result for key, (result, _) in effects(stopped).items() if "|update|" in key} == {
        key: result for key, (result, _) in effects(whole).items() if "|update|" in key
    }
    assert same_tensors(
        adapter_of(stopped / "checkpoints" / "update-5"), adapter_of(whole / "checkpoints" / "update-5")
    )
