"""A run whose rollouts run two updates ahead trains real weights: killed and resumed, and replayed, it is the same."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from parity_task import (
    EMBEDDED,
    NO_TOKENIZER,
    adapter_of,
    carry_out,
    effects,
    finished,
    lines,
    records,
    same_tensors,
    write_model,
)

from evorun.training.checkpoints import find_former
from evorun.training.process import TrainerProcess
from evorun.training.wire import Train

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.nightly,  # test_policy.py and methods/test_max_lag.py resume runs with a lag, without weights
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]

# With this seed each step has an update.
LAGGED: dict[str, Any] = {
    "seed": 4,
    "method": {"name": "grpo", "steps": 6, "eval_every": None},
    "training": {"max_lag": 2, "save_every": 2, "learning_rate": 0.003},
}


def test_killed_and_resumed_with_a_lag_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "model")
    whole = finished(tmp_path / "whole", model, **LAGGED)
    figures = [line["figures"] for line in lines(whole / "training.jsonl")]
    assert [one["lag"] for one in figures] == [0, 1, 2, 2, 2, 2]
    # The rollouts of step 1 have the weights that learn from them; those of later steps have older ones.
    assert figures[0]["sampler_kl"] == pytest.approx(0, abs=1e-6)
    assert min(one["sampler_kl"] for one in figures[1:]) > 1e-5
    assert sorted(find_former(whole / "checkpoints" / "update-4")) == [2, 3]
    stopped, ask = tmp_path / "stopped", TrainerProcess.ask

    async def dying(self: TrainerProcess, command: Any) -> Any:
        asked = asyncio.ensure_future(ask(self, command))
        if isinstance(command, Train) and command.number == 5:
            await asyncio.sleep(0)  # it is on its way to the trainer
            self._process.kill()
        return await asked

    with monkeypatch.context() as patch:
        patch.setattr(TrainerProcess, "ask", dying)
        assert carry_out(stopped, model, **LAGGED).status == "failed"
    finished(stopped, model, **LAGGED)
    replayed = finished(tmp_path / "replayed", model, **LAGGED, engine={"name": "replay", "run": str(whole)})
    for again in (stopped, replayed):
        assert records(again) == records(whole)
    assert {key: result for key, (result, _) in effects(stopped).items() if "|update|" in key} == {
        key: result for key, (result, _) in effects(whole).items() if "|update|" in key
    }
    adapters = [adapter_of(run / "artifacts" / "adapter") for run in (whole, stopped)]
    assert same_tensors(*adapters)
