"""Losses of TRL 1.12's PPOTrainer on one batch, kept as numbers for tests/training/test_proximal_steps.py.

    pip install --no-deps --target /tmp/trl112 trl==1.12.0
    PYTHONPATH=/tmp/trl112 .venv/bin/python scripts/ppo_reference.py > tests/training/ppo_reference.json

TRL has no PPOTrainer since 1.13, so this runs in an environment of its own: the project's, with that version before its
own on the path. Where the two differ in conventions the batch leaves no difference: there is one process and one
micro-batch, since TRL whitens the advantages of a process and averages the losses of a micro-batch, and padding is
another token than the end of the sequence, since TRL leaves the latter out otherwise.

Nothing is random: weights are functions of their names, and completions are given. What a trainer generates, and what a
reward model says of it, are replaced by these; its numbers are read from the frame of `PPOTrainer.train`.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

VOCABULARY, PAD, END = 40, 0, 1
LENGTHS = ((3, 7), (5, 4), (4, 9), (6, 2), (3, 9), (5, 1))
"""Tokens of each row's prompt and of its completion."""

LORA: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}
OPTIMISER = {"learning_rate": 0.1, "adam_beta2": 0.95, "adam_epsilon": 1.0}
CASES: tuple[dict[str, Any], ...] = (
    {"kl_estimator": "k1", "temperature": 1.0, "kl": 0.05, "gamma": 1.0, "gae_lambda": 0.95},
    {"kl_estimator": "k3", "temperature": 0.7, "kl": 0.2, "gamma": 0.9, "gae_lambda": 0.8},
)
EPOCHS = 4


def models() -> Any:
    """Return transformers, whose types do not say all that its classes take."""
    import transformers

    return transformers


def configuration() -> Any:
    """Return the architecture of policy and critic."""
    return models().LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=END,
        pad_token_id=PAD,
        num_labels=1,
    )


def tokenizer() -> Any:
    """Return a tokenizer of words that are numbers."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = Tokenizer(WordLevel({f"w{number}": number for number in range(VOCABULARY)}))
    return models().PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=f"w{END}", pad_token=f"w{PAD}", padding_side="left"
    )


def fill(parameters: Iterable[tuple[str, Any]], role: str) -> None:
    """Give weights the values that their names stand for. role: base, policy or critic."""
    import torch

    for name, parameter in parameters:
        part = re.sub(r"^(\w+\.)*?(?=layers|embed_tokens|norm|lm_head|score|head)", "", name, count=1)
        part = re.sub(r"base_layer\.|default\.", "", part).replace("score", "head")
        rng = np.random.default_rng(list(f"{role} {part}".encode()))
        drawn = rng.normal(0, 0.2, tuple(parameter.shape)) + part.endswith("norm.weight")
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(drawn))


def completions() -> list[dict[str, Any]]:
    """Return prompts and completions, which end by themselves but for the longest, and their rewards."""
    rng = np.random.default_rng(14)
    longest = max(size for _, size in LENGTHS)
    rows = []
    for prompt, size in LENGTHS:
        tokens = rng.integers(2, VOCABULARY, size).tolist()
        tokens[-1] = tokens[-1] if size == longest else END
        given = rng.integers(2, VOCABULARY, prompt).tolist()
        rows.append({"prompt": given, "tokens": tokens, "reward": round(float(rng.normal()), 3)})
    return rows


def reference(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what TRL makes of the batch with some settings."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig, inject_adapter_in_model
    from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

    rows = completions()
    policy = models().LlamaForCausalLM(configuration())
    critic = models().LlamaForSequenceClassification(configuration())
    for model in (policy, critic.model):
        fill(model.named_parameters(), "base")
    critic.model = inject_adapter_in_model(LoraConfig(**LORA), critic.model)
    reward_model = torch.nn.Linear(1, 1)
    config = PPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=len(rows),
        total_episodes=len(rows),
        num_ppo_epochs=EPOCHS,
        num_sample_generations=0,
        stop_token="eos",  # noqa: S106 - no password
        temperature=case["temperature"],
        kl_coef=case["kl"],
        kl_estimator=case["kl_estimator"],
        gamma=case["gamma"],
        lam=case["gae_lambda"],
        lr_scheduler_type="constant",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **OPTIMISER,
    )
    trainer = PPOTrainer(
        args=config,
        processing_class=tokenizer(),
        model=policy,
        ref_model=None,
        reward_model=reward_model,
        value_model=critic,
        train_dataset=Dataset.from_dict({"input_ids": [row["prompt"] for row in rows]}),
        eval_dataset=Dataset.from_dict({"input_ids": [rows[0]["prompt"]]}),
        peft_config=LoraConfig(**LORA, task_type="CAUSAL_LM"),
    )
    for role, model in (("policy", trainer.policy_model), ("critic", critic)):
        fill(((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad), role)

    def of_query(query: Any) -> dict[str, Any]:
        """Return the row whose prompt this is, padded on the left."""
        prompt = [token for token in query.tolist() if token != PAD]
        return next(row for row in rows if row["prompt"] == prompt)

    def generate(model: Any, queries: Any, *_: Any) -> tuple[Any, Any]:
        longest = max(size for _, size in LENGTHS)
        responses = torch.full((len(queries), longest), PAD)
        logits = torch.zeros(len(queries), longest, VOCABULARY)
        for index, query in enumerate(queries):
            row = of_query(query)
            start, size = len(row["prompt"]), len(row["tokens"])
            responses[index, :size] = torch.tensor(row["tokens"])
            every = model(torch.tensor([row["prompt"] + row["tokens"]])).logits[0, start - 1 : -1]
            logits[index, :size] = every / case["temperature"]
            chosen = logits[index, :size].log_softmax(-1).gather(1, responses[index, :size, None])[:, 0]
            row["logprobs"] = chosen.tolist()
        return torch.cat([queries, responses], dim=1), logits

    get_reward = ppo_trainer.get_reward

    def rewarded(model: Any, ids: Any, pad: int, context: int) -> Any:
        if model is not reward_model:
            return get_reward(model, ids, pad, context)
        return None, torch.tensor([of_query(sequence[:context])["reward"] for sequence in ids]), None

    seen: dict[str, Any] = {}

    def look() -> None:
        """Keep the caller's variables, once it has estimated the advantages; called where TRL empties a cache."""
        caller = sys._getframe(1).f_locals
        if "advantages" in caller:
            seen.update({name: value for name, value in caller.items() if isinstance(value, torch.Tensor)})

    ppo_trainer.batch_generation, ppo_trainer.get_reward, ppo_trainer.empty_cache = generate, rewarded, look
    trainer.train()

    for index, query in enumerate(seen["queries"]):
        row, (of_tokens, of_states) = of_query(query), (~seen["padding_mask"], ~seen["padding_mask_p1"])
        row["advantages"] = seen["advantages"][index][of_tokens[index]].tolist()
        row["returns"] = seen["returns"][index][of_states[index]].tolist()
    of_epochs = {
        "policy_loss": "pg_loss_stats",
        "value_loss": "vf_loss_stats",
        "clip_ratio": "pg_clipfrac_stats",
        "value_clip_ratio": "vf_clipfrac_stats",
    }
    return {"settings": case, "rows": rows, **{name: seen[own].flatten().tolist() for name, own in of_epochs.items()}}


if __name__ == "__main__":
    import contextlib

    import trl

    if trl.__version__ != "1.12.0":
        sys.exit(f"expected trl 1.12.0 before the others on PYTHONPATH, got {trl.__version__}")
    with contextlib.redirect_stdout(sys.stderr):  # the trainer's own words
        numbers = [reference(case) for case in CASES]
    print("[" + ",\n".join(map(json.dumps, numbers)) + "]")
