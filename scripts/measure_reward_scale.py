"""PPO at a change of the reward's scale: a rubric of 5 points, and from half-way on one of 24 for the same qualities.

    python scripts/measure_reward_scale.py

A random Llama of some thousand weights learns with `evorun.training.proximal_policy` to say the first half of its
vocabulary: the score of six tokens is their share of that half, times the rubric's points. Every arm has the settings
of conf/method/ppo.yaml and differs from "paper" (raw points) in what its name says. For each arm, means over seeds at
some steps, the first by the new rubric being number 13:

error: root of the mean squared difference of value and reward, as a share of the rubric's points, before the update.
explained: share of the variance of returns that values explain (below 0: worse than a constant).
clipped: share of states whose value the value clip held back. kl share: the penalty for divergence of an episode,
beside the standard deviation of returns. score: mean share of the points.
"""

import argparse
import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from omegaconf import OmegaConf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from evorun.models.config import ModelConfig
from evorun.training.advantages import ScoredEpisode
from evorun.training.config import TrainingConfig
from evorun.training.objectives import ProximalSettings
from evorun.training.proximal_policy import ProximalTrainer
from evorun.training.serving import Finished
from evorun.training.wire import Job, ProximalPolicy, Row, Train

CONF = Path(__file__).parents[1] / "conf"
ARMS: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "by_total": {"by_total": True},
    "popart": {"popart": 0.1},
    "reset": {"reset_critic": True},
}
OLD, NEW = 5.0, 24.0
STEPS, CHANGE = 24, 13
SHOWN = (12, 13, 14, 16, 20, 24)
BATCH, LENGTH, VOCABULARY = 32, 6, 20
KL, LEARNING_RATE = 0.05, 1e-2
FIGURES = ("error", "explained", "clipped", "kl share", "score")


class Rubrics:
    """In the place of a run: plays and rewards a batch for each step, by the rubric of the step."""

    def __init__(self, seed: int, by_total: bool) -> None:
        self._by_total = by_total
        self._rng = torch.Generator().manual_seed(seed)
        self.policy: Any = None
        self.number = 0
        self.scores: list[float] = []

    @property
    def points(self) -> float:
        """Points of the rubric of this step."""
        return OLD if self.number < CHANGE else NEW

    @property
    def maximum(self) -> float:
        """The largest reward of this step."""
        return 1.0 if self._by_total else self.points

    def next_training(self) -> Train:
        if self.number == STEPS:
            raise Finished
        self.number += 1
        ids = torch.ones((BATCH, 1), dtype=torch.long)
        logprobs = []
        with torch.no_grad():
            for _ in range(LENGTH):
                told = self.policy(input_ids=ids).logits[:, -1].float().log_softmax(-1)
                drawn = torch.multinomial(told.exp(), 1, generator=self._rng)
                logprobs.append(told.gather(1, drawn))
                ids = torch.cat([ids, drawn], dim=1)
        share = (ids[:, 1:] < VOCABULARY // 2).double().mean(dim=1)
        self.scores.append(float(share.mean()))
        each = zip(ids.tolist(), torch.cat(logprobs, dim=1).tolist(), share.tolist(), strict=True)
        rows = tuple(
            Row(
                prompt=tuple(of_row[:1]),
                tokens=tuple(of_row[1:]),
                learned=(True,) * LENGTH,
                reward=own * self.maximum,
                advantage=None,
                logprobs=tuple(probabilities),
            )
            for of_row, probabilities, own in each
        )
        return Train(number=self.number, rows=rows, rewards_changed=self.number == CHANGE)


class Watched(ProximalTrainer):
    """Notes how far values are from rewards."""

    errors: Sequence[float] = ()

    def _score(self, dealt: Sequence[Sequence[Row]]) -> list[list[ScoredEpisode]]:
        scored = super()._score(dealt)
        every = [float(np.mean((episode.values - episode.reward) ** 2)) for part in scored for episode in part]
        self.errors = [*self.errors, *every]
        return scored


def learn(folder: Path, seed: int, *, by_total: bool = False, **objective: Any) -> dict[str, list[float]]:
    """Return each figure by step."""
    method: Any = OmegaConf.to_container(OmegaConf.load(CONF / "method" / "ppo.yaml"))
    training: Any = OmegaConf.to_container(OmegaConf.load(CONF / "training" / "lora.yaml"))
    names = ("epochs", "minibatches", "kl_estimator", "gamma", "gae_lambda", "clip", "value_clip", "value_weight")
    told = {name: method[name] for name in (*names, "whiten", "score_at", "popart", "reset_critic")}
    told |= {"kl": KL, "critic": "full", "missing_eos_penalty": None, **objective}
    config = TrainingConfig(**{**training, "learning_rate": LEARNING_RATE, "micro_batch": BATCH, "max_grad_norm": None})
    policy = ProximalPolicy(settings=ProximalSettings(**told), steps=STEPS, temperature=1.0)
    job = Job(
        socket="",
        model=ModelConfig(name="tiny", id="tiny", context_length=64),
        weights="tiny",
        training=config,
        objective=policy,
        seed=seed,
        folder=str(folder),
        checkpoint=None,
        device="cpu",
        max_batch_size=BATCH,
        prefix_cache_tokens=0,
    )
    run = Rubrics(seed, by_total)
    trainer = Watched(job, policy, *_model(seed), run)  # type: ignore[arg-type]
    trainer.remove_callback(transformers.PrinterCallback)
    run.policy = trainer.policy
    with contextlib.suppress(Finished):
        trainer.train()
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    epochs = policy.settings.epochs * policy.settings.minibatches
    found: dict[str, list[float]] = defaultdict(list)
    for step in range(STEPS):
        maximum = 1.0 if by_total else OLD if step + 1 < CHANGE else NEW
        entries = log[step * epochs : (step + 1) * epochs]
        mean_square = np.mean(trainer.errors[step * BATCH : (step + 1) * BATCH])
        found["error"].append(float(np.sqrt(mean_square)) / maximum)
        found["explained"].append(entries[0]["explained_variance"])
        found["clipped"].append(float(np.mean([entry["value_clip_ratio"] for entry in entries])))
        found["kl share"].append(KL * entries[0]["episode_kl"] / max(entries[0]["return_spread"], 1e-9))
        found["score"].append(run.scores[step])
    return found


def _model(seed: int) -> tuple[Any, Any]:
    words = Tokenizer(WordLevel({f"w{number}": number for number in range(VOCABULARY)}))
    ends: dict[str, Any] = {"eos_token": "w0", "pad_token": "w0"}
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "eos_token_id": 0, "pad_token_id": 0, "initializer_range": 0.3}
    torch.manual_seed(seed)
    model: Any = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes))  # type: ignore[no-untyped-call]
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=words, **ends)  # type: ignore[no-untyped-call]
    return model, tokenizer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'arm':16}{'step':>5}" + "".join(f"{name:>11}" for name in FIGURES))
    for arm, settings in ARMS.items():
        with tempfile.TemporaryDirectory() as folder:
            runs = [learn(Path(folder), seed, **settings) for seed in range(options.seeds)]
        for step in SHOWN:
            means = [float(np.mean([run[name][step - 1] for run in runs])) for name in FIGURES]
            print(f"{arm:16}{step:5}" + "".join(f"{mean:11.3f}" for mean in means), flush=True)
