"""A run's training steps against TRL's trainers called directly."""

import json
from pathlib import Path

import pytest
from parity_task import EMBEDDED, NO_TOKENIZER, adapter_of, finished, is_right, lines, write_model

from evorun.runs.journal_reader import read_journal

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]

GROUP, ROWS = 4, 8
ADAM = {"learning_rate": 1.0, "epsilon": 1.0}
"""With a small epsilon Adam's step is nearly the gradient's sign, which a sum's last bit may turn around."""


@pytest.mark.nightly  # test_policy_gradient_steps.py has steps beside bare TRL's
@pytest.mark.parametrize(("method", "kind"), [("grpo", "dr_grpo"), ("rloo", "rloo")])
def test_losses_norms_and_adapter_are_those_of_bare_trl(method: str, kind: str, tmp_path: Path) -> None:
    """Two steps: the second one also depends on Adam's state, and on completions of other weights."""
    import bare_trl
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = write_model(tmp_path / "model")
    training = {**ADAM, "alpha": 8.0, "micro_batch": 3, "max_grad_norm": 1e9}
    run = finished(tmp_path / "run", model, method={"steps": 2, "name": method}, training=training)
    figures = [line["figures"] for line in lines(run / "training.jsonl")]
    tokenizer = AutoTokenizer.from_pretrained(model)

    effects = {one.key: one for one in read_journal(run / "journal.sqlite")}

    def sampled(step: int, place: int) -> bare_trl.Completed:
        one = effects[f"*|{step}|rollout|{place}|0"]
        messages, [completion] = json.loads(one.request)["messages"], json.loads(one.result)["completions"]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        tokens = completion["token_ids"]
        reward = float(is_right(tokenizer.decode(tokens, skip_special_tokens=True)))
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        return bare_trl.Completed(ids, tokens, [True] * len(tokens), reward)

    bare = bare_trl.train(
        AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        tokenizer,
        [[sampled(step, place) for place in range(ROWS)] for step in (1, 2)],
        tmp_path / "bare",
        kind=kind,
        group=GROUP,
        micro_batch=ROWS,
        seed=3,
        beta=0.0,
        learning_rate=1.0,
        adam_epsilon=1.0,
        max_grad_norm=1e9,
    )
    assert [one["grad_norm"] for one in figures] == pytest.approx(bare.grad_norms, rel=1e-3)
    assert all(norm > 0 for norm in bare.grad_norms)
    trained = adapter_of(run / "artifacts" / "adapter")
    assert trained.keys() == bare.adapter.keys()
    assert all(bool((trained[name] - bare.adapter[name]).norm() < 1e-3 * trained[name].norm()) for name in trained)
    assert any(bool(value.any()) for name, value in trained.items() if "lora_B" in name)
    # On policy the sampler's probabilities are the trainer's, so nothing is clipped.
    assert all(one["sampler_kl"] < 1e-6 and one["clip_ratio"] == 0 for one in figures)
