"""E-SPL's loop, with a scripted model and a policy that only takes notes."""

import json
from pathlib import Path
from typing import Any

from evorun.runs.reading import read_rollouts
from learning_fixture import Trained, train
from method_fixture import SEED_INSTRUCTION, Ask

EVOLVING: dict[str, Any] = {"method": "espl", "prompts": 2, "crossover_rate": 0.0}


def edits(*texts: str) -> str:
    return json.dumps({"analysis": "because", "edits": [{"op": "add", "text": text} for text in texts]})


def learning(ask: Ask) -> str:
    """Rollouts are right one time in three, two with principles; every reflection adds a principle of its own."""
    if ask.role in ("rollout", "evaluate"):
        principles = (ask.instruction or "").count("[G")
        return "right" if ask.index % 3 <= min(principles, 1) else "wrong"
    if ask.role == "summary":
        return f"summary {ask.index}"
    return edits(f"{ask.role} of step {ask.step}, {ask.index}")


def prompts(trained: Trained) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in trained.records("candidates") if one["kind"] == "system_prompt"}


async def test_the_best_prompt_of_a_batch_has_a_child_and_its_rollouts_are_to_blame(tmp_path: Path) -> None:
    trained = await train(tmp_path / "run", learning, steps=2, **EVOLVING)
    known = prompts(trained)
    assert list(known) == ["0.0", "1.0", "2.0"]
    assert known["0.0"]["text"] == SEED_INSTRUCTION
    child = known["1.0"]
    assert (child["parents"], child["operator"], child["call"]) == (["0.0"], "mutation", "*|1|aggregation|0|0")
    assert "aggregation of step 1, 0" in child["text"]
    assert "critique of step 1, 0" in child["reflection"]
    rollouts = {one.call: one for one in read_rollouts(trained.folder)}
    assert {rollouts[call].candidate for call in child["blamed"]} == {"0.0"}
    # N rollouts of each problem under the one prompt that was best, though the root was drawn twice
    assert len(child["blamed"]) == len(trained.model.of("summary")) / 2 == 2 * 3
