"""The policy of a simulated run: a skill that rises with updates, and a few weights for texts without a right answer.

It replaces `evorun.training.policy` in a method that trains, and records the same updates in the journal. A resumed run
repeats them and reaches the same skill, since an update depends only on its rows and on the gradient in the journal.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from evorun.models.adapters import SIMULATED, ModelUnderAdapter
from evorun.models.base import LanguageModel, Reply, Request, Trained
from evorun.runs.journal import Journal
from evorun.runs.journal_file import digest_request
from evorun.runs.records import write_json
from evorun.simulation.engine import SimulatedConfig, decode_text
from evorun.simulation.learning import Learned, skill_gradient
from evorun.training.base import GetScores, UpdatesByStep
from evorun.training.policy import KEPT
from evorun.training.updates import update_key
from evorun.training.wire import Figures, Row, Train, encode

LEARNED = SIMULATED
"""File in artifacts/ in place of an adapter. It holds the number of updates, their total gain in skill, and a writer's
probabilities of a sentence to the point and of exploiting a loophole, also by kind and after each update."""


class SimulatedPolicy:
    """A simulated model that learns. Belongs to one event loop."""

    def __init__(
        self, name: str, base: LanguageModel, engine: SimulatedConfig, run: Path, journal: Journal, max_lag: int = 0
    ) -> None:
        """base: answers with its skill plus each request's hint `learned`."""
        self.max_lag = max_lag
        self.stopwatch = None
        self.reference = base
        """Completions of the untrained model."""
        self.current: Trained = _ByStep(self, name)
        """Completions with the skill of a step; the model's name contains the number of updates."""
        self._name = name
        self._engine = engine
        self._run = run
        self._journal = journal
        self.issued = UpdatesByStep()
        self._learned = [Learned.initial(engine)]
        """Before the first update and after each."""
        self._updating = asyncio.Lock()

    async def update(
        self,
        step: int,
        rows: Sequence[Row],
        *,
        rewards_changed: bool = False,
        get_scores: GetScores | None = None,
    ) -> Figures:
        """Learn from a batch of completions, as `Learned.updated` says; return its figures."""
        number = self.issued.issue(step)
        async with self._updating:
            about = encode(Train(number=number, rows=tuple(rows), rewards_changed=rewards_changed))
            # PPO gives no advantages. Without a critic, rewards replace them; the update centres them.
            advantages = [row.reward if row.advantage is None else row.advantage for row in rows]

            async def learn() -> Figures:
                await asyncio.sleep(self._engine.seconds_per_update)
                scores = None if get_scores is None else await get_scores()
                gradient = skill_gradient(advantages, [row.reward for row in rows], scores)
                return Figures({"gradient": gradient, "grad_norm": abs(gradient), "rows": float(len(rows))})

            request = msgspec.json.encode(
                {"model": f"{self._name}@{number - 1}", "digest": digest_request(about).hex()}
            )
            figures = await self._journal.remember(update_key(step, number), about, learn, Figures, request=request)
            texts = [decode_text(row.tokens) for row in rows]
            self._learned.append(
                self._learned[-1].updated(self._engine, texts, advantages, figures.figures["gradient"])
            )
        return figures

    async def restart(self, step: int) -> None:
        """Go back to the untrained model."""
        self.issued.issue(step)
        async with self._updating:
            self._learned.append(Learned.initial(self._engine))

    async def generate(self, version: int, request: Request) -> Reply:
        """Answer a request with the skill after `version` updates."""
        if version >= len(self._learned):
            async with self._updating:  # wait for an update in progress
                pass
        learned = self._learned[version]
        hints = {**request.hints, "learned": learned.gain, "weights": learned.weights}
        reply = await self.reference.complete(msgspec.structs.replace(request, hints=hints))
        return msgspec.structs.replace(reply, version=version)

    async def export(self, step: int | None = None) -> Path:
        """Write the learned skill into artifacts/; return the file. Raises RunDirectoryError when that fails."""
        file = self._run / "artifacts" / (LEARNED if step is None else f"{KEPT}/step_{step}/{LEARNED}")
        file.parent.mkdir(parents=True, exist_ok=True)
        gain, weights = self._learned[-1]
        rates = dict(zip(weights.kinds, weights.loophole_rates, strict=True))
        learned: dict[str, Any] = {
            "learned": gain,
            "quality": weights.quality_rate,
            "loophole_rate": sum(rates.values()),
        }
        by_update = [
            dict(zip(at_update.kinds, at_update.loophole_rates, strict=True)) for _, at_update in self._learned
        ]
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
