"""The policy of a simulated run: a skill that rises with updates, and a few weights for texts without a right answer.

It replaces `evorun.training.policy` in a method that trains, and records the same updates in the journal. A resumed run
repeats them and reaches the same skill, since an update depends only on its rows.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from evorun.models.adapters import ModelUnderAdapter
from evorun.models.base import LanguageModel, Reply, Request, Trained
from evorun.runs.journal import Journal
from evorun.runs.journal_file import digest_request
from evorun.runs.records import write_json
from evorun.simulation.engine import SimulatedConfig, decode_text
from evorun.simulation.skill import Responder, Skill
from evorun.simulation.writing import Weights
from evorun.training.base import UpdatesByStep
from evorun.training.policy import KEPT, update_key
from evorun.training.wire import Figures, Row, Train, encode

LEARNED = "simulated_policy.json"
"""File in artifacts/ in place of an adapter. It holds the number of updates, their total gain in skill, and a writer's
probabilities of a sentence to the point and of exploiting a loophole, also by kind and after each update."""


class SimulatedPolicy:
    """A simulated model that learns. Belongs to one event loop."""

    def __init__(
        self, name: str, base: LanguageModel, engine: SimulatedConfig, run: Path, journal: Journal, max_lag: int = 0
    ) -> None:
        """base: answers with its skill plus each request's hint `learned`."""
        self.max_lag = max_lag
        self.reference = base
        """Completions of the untrained model."""
        self.current: Trained = _ByStep(self, name)
        """Completions with the skill of a step; the model's name contains the number of updates."""
        self._name = name
        self._engine = engine
        self._run = run
        self._journal = journal
        self.issued = UpdatesByStep()
        self._learned = [0.0]
        """Gain in skill before the first update and after each."""
        self._weights = [Weights.initial(engine)]
        """The writer's weights before the first update and after each."""
        self._updating = asyncio.Lock()

    async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False) -> Figures:
        """Learn from a batch of completions; return its figures.

        A policy whose only weight is its probability of a right answer has the gradient mean(advantage x right). With
        rewards of 0 and 1, this is the mean square of the advantages. It is 1/4 if half of a large group is right, and
        0 if all rewards are equal. The remaining gain shrinks by `training_speed` times four times that, or by less if
        there are few completions (`gradient_noise`). A writer's weights take a step along the gradient at the rows'
        texts.
        """
        number = self.issued.issue(step)
        async with self._updating:
            about = encode(Train(number=number, rows=tuple(rows), rewards_changed=rewards_changed))
            # PPO gives no advantages. Without a critic, rewards replace them; np.var and `Weights.updated` centre them.
            advantages = [row.reward if row.advantage is None else row.advantage for row in rows]
            variance = float(np.var(advantages)) if rows else 0.0

            async def learn() -> Figures:
                await asyncio.sleep(self._engine.seconds_per_update)
                return Figures({"grad_norm": variance, "rows": float(len(rows))})

            request = msgspec.json.encode(
                {"model": f"{self._name}@{number - 1}", "digest": digest_request(about).hex()}
            )
            figures = await self._journal.remember(update_key(number), about, learn, Figures, request=request)
            left, counted = self._engine.training_gain - self._learned[-1], sum(map(bool, advantages))
            exact = counted / (counted + self._engine.gradient_noise) if counted else 0.0
            share = self._engine.training_speed * min(1.0, 4 * variance) * exact
            self._learned.append(self._learned[-1] + share * left)
            texts, step_size = [decode_text(row.tokens) for row in rows], self._engine.policy_learning_rate
            self._weights.append(self._weights[-1].updated(texts, advantages, step_size))
        return figures

    async def generate(self, version: int, request: Request) -> Reply:
        """Answer a request with the skill after `version` updates."""
        if version >= len(self._learned):
            async with self._updating:  # wait for an update in progress
                pass
        hints = {**request.hints, "learned": self._learned[version], "weights": self._weights[version]}
        return await self.reference.complete(msgspec.structs.replace(request, hints=hints))

    async def export(self, step: int | None = None) -> Path:
        """Write the learned skill into artifacts/; return the file. Raises RunDirectoryError when that fails."""
        file = self._run / "artifacts" / (LEARNED if step is None else f"{KEPT}/step_{step}/{LEARNED}")
        file.parent.mkdir(parents=True, exist_ok=True)
        weights = self._weights[-1]
        rates = dict(zip(weights.kinds, weights.loophole_rates, strict=True))
        learned: dict[str, Any] = {
            "learned": self._learned[-1],
            "quality": weights.quality_rate,
            "loophole_rate": sum(rates.values()),
        }
        by_update = [dict(zip(at_update.kinds, at_update.loophole_rates, strict=True)) for at_update in self._weights]
        learned |= {"loophole_rates": rates, "loophole_rates_by_update": by_update}
        write_json(file, {"model": self._name, "updates": len(self._learned) - 1, **learned})
        return file

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


class _ByStep:
    """The policy with the skill of each step; implements `Trained`."""

    def __init__(self, policy: SimulatedPolicy, name: str) -> None:
        self.policy, self.name = policy, name

    def at(self, step: int) -> LanguageModel:
        version = self.policy.issued.version(step)
        return ModelUnderAdapter(f"{self.name}@{version}", partial(self.policy.generate, version))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


class BothSplits:
    """One simulator for a task's problems and for its training problems."""

    def __init__(self, tested: Any, trained: Any, training: frozenset[str]) -> None:
        """training: ids of the problems that `trained` answers."""
        self._tested, self._trained, self._training = tested, trained, training

    def with_skill(self, skill: Skill) -> "BothSplits":
        return BothSplits(self._tested.with_skill(skill), self._trained.with_skill(skill), self._training)

    def at_random(self) -> "BothSplits":
        return BothSplits(self._tested.at_random(), self._trained.at_random(), self._training)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        trained = request.hints.get("problem") in self._training
        answering: Responder = self._trained if trained else self._tested
        return answering.respond(request, rng)
