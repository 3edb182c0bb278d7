"""The gepa package over evorun's engines: its blocking calls, made in a thread, become calls on the event loop.

Rollouts and reflections go through the run's journal and meter like every other call. GEPA is sequential and seeded, so
a resumed run repeats it from the start with answers from the journal.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from evorun.methods.context import RunContext
from evorun.models.base import Message, Sampling
from evorun.rollouts.calls import Calls
from evorun.runs.candidates import Candidate, Step
from evorun.tasks.base import Prompt
from evorun.tasks.json_text import replace_lone_surrogates
from evorun.tasks.thinking import without_thinking

COMPONENT = "system_prompt"
"""Name of the only text that GEPA evolves here."""

OPERATORS = ("seed", "reflect", "merge")
"""Indexed by the number of parents."""


class GepaState(NamedTuple):
    """The prompts after an iteration."""

    pool: list[Candidate]
    """Accepted prompts, in GEPA's numbering.

    Their mean is the mean score on the validation half; a problem whose budget had ended counts 0.
    """
    rejected: list[Candidate]
    """Prompts that did no better than their parent on the minibatch."""

    @property
    def best(self) -> Candidate:
        """The prompt with the highest score; ties go to the earliest."""
        return max(self.pool, key=lambda prompt: prompt.mean or 0.0)


class Prompts:
    """The prompts of GEPA's iterations so far; each iteration proposes at most one."""

    def __init__(self, validation: int) -> None:
        """validation: number of problems whose scores choose among prompts."""
        self._validation = validation
        self._state = GepaState([], [])
        self.proposed: str | None = None
        """The present iteration's proposal."""
        self.call: str | None = None
        """Key of the call that writes the next proposal; None for the seed and for merges, which no model writes."""

    def after(self, iteration: int, state: Any) -> GepaState:
        """Return the prompts after an iteration, from GEPA's state."""
        pool, rejected = self._state
        accepted = range(len(pool), len(state.program_candidates))
        for index in accepted:
            parents = [parent for parent in state.parent_program_for_candidate[index] if parent is not None]
            mean = sum(state.prog_candidate_val_subscores[index].values()) / self._validation
            pool.append(self._candidate(state.program_candidates[index][COMPONENT], iteration, parents, mean))
        # GEPA's state drops a rejected prompt; the records keep it.
        if self.proposed is not None and not accepted:
            parent = state.full_program_trace[-1]["selected_program_candidate"]
            rejected.append(self._candidate(self.proposed, iteration, [parent], None))
        self.proposed = None
        # Copies, since the event loop reads them while GEPA's thread continues.
        return GepaState(list(pool), list(rejected))

    def _candidate(self, text: str, iteration: int, parents: Sequence[int], mean: float | None) -> Candidate:
        return Candidate(
            id=f"{iteration}.0",
            kind="system_prompt",
            generation=iteration,
            parents=tuple(self._state.pool[parent].id for parent in parents),
            operator=OPERATORS[len(parents)],
            text=replace_lone_surrogates(text),
            answer=None,
            call=self.call if len(parents) == 1 else None,
            mean=mean,
            survivor=mean is not None,
        )


log = logging.getLogger("evorun.gepa")

T = TypeVar("T")


class Rollout(NamedTuple):
    """A scored response under a prompt."""

    text: str
    score: float
    record: Mapping[str, str]
    """Its description for the reflection prompt."""


class Rollouts(Protocol):
    """The problems that prompts are tried on: the validation split or the run's problems."""

    role: str
    """Role of the calls that try a prompt."""
    train: Sequence[Any]
    """Problems or demonstrations that prompts are reflected on."""
    validation: Sequence[Any]
    """Problems or demonstrations whose scores choose among prompts."""

    async def evaluate(self, instruction: str, batch: Sequence[Any], number: int) -> list[Rollout]:
        """Try a prompt on a batch; `number` counts the batches of the run."""
        ...

    async def steps(self, step: int, state: GepaState) -> Mapping[str, Step]:
        """Return the step of each problem after an iteration."""
        ...

    def min_calls(self) -> int:
        """Return the number of calls that the seed prompt alone takes."""
        ...

    async def affords(self, minibatch: int) -> bool:
        """Return whether the budget covers another iteration at its maximum cost; drop problems that cannot pay."""
        ...

    def takes_part(self, example: Any) -> bool:
        """Return whether an example of `train` or `validation` has not been dropped."""
        ...

    def payer(self, batch: Sequence[Any]) -> Calls:
        """Return the calls whose budget pays for a reflection on a batch."""
        ...


@dataclass(frozen=True)
class Settings:
    """The settings of `gepa.optimize`."""

    iterations: int | None
    metric_calls: int | None
    minibatch: int
    candidate_selection: str
    seed: int
    reflection: Sampling
    has_perfect: bool
    """True when 1 is the maximum score, so that a batch of perfect scores teaches nothing."""


class _Stopped(Exception):
    """Raised to end GEPA's thread when nobody waits for it any more."""


class Bridge:
    """GEPA's adapter, its reflection model and its stopping rule; called from GEPA's thread."""

    propose_new_texts = None  # None: GEPA's own proposer, with its prompt

    def __init__(self, ctx: RunContext, rollouts: Rollouts, settings: Settings) -> None:
        self.ctx = ctx
        self.rollouts = rollouts
        self.settings = settings
        self.turns: asyncio.Queue[tuple[int, GepaState, asyncio.Event]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._handing_over = threading.Lock()
        self._pending: Future[Any] | None = None
        self.failure: BaseException | None = None
        """The error of evorun's that ended GEPA, if any."""
        self._reflected_on: Sequence[Any] = ()
        self._batches = 0
        self._reflections = 0
        self._prompts = Prompts(len(rollouts.validation))

    def evaluate(self, batch: Sequence[Any], candidate: Mapping[str, str], capture_traces: bool = False) -> Any:
        """Try a candidate on a batch (GEPA's adapter protocol)."""
        from gepa.core.adapter import EvaluationBatch

        if capture_traces:  # GEPA asks for traces of a batch only to reflect on it
            self._reflected_on = batch
        number, self._batches = self._batches, self._batches + 1
        tried = self._wait_for(self.rollouts.evaluate(candidate[COMPONENT], batch, number))
        return EvaluationBatch(
            outputs=[rollout.text for rollout in tried],
            scores=[rollout.score for rollout in tried],
            trajectories=tried if capture_traces else None,
        )

    def make_reflective_dataset(
        self, candidate: Mapping[str, str], eval_batch: Any, components_to_update: Sequence[str]
    ) -> dict[str, list[Mapping[str, str]]]:
        """Return the records of a batch for the reflection prompt (GEPA's adapter protocol)."""
        return {name: [rollout.record for rollout in eval_batch.trajectories] for name in components_to_update}

    def reflect(self, prompt: str | Sequence[Message]) -> str:
        """Answer GEPA's reflection prompt."""
        number, self._reflections = self._reflections, self._reflections + 1
        messages = (Message(role="user", content=prompt),) if isinstance(prompt, str) else tuple(prompt)
        reflection = Prompt(messages=messages, hints={"role": "reflect"})
        # Safe to read in GEPA's thread: GEPA makes one call after the other, so none is under way.
        payer = self.rollouts.payer(self._reflected_on)
        replies = self._wait_for(
            payer.generate([reflection], role="reflect", step=number, sampling=self.settings.reflection)
        )
        self._prompts.call = payer.key(number, "reflect", 0, 0) if replies else None
        text = without_thinking(replies[0].completions[0].text) if replies else ""
        # An empty answer would become an empty prompt; with the seed prompt the iteration has no effect.
        return text or f"```\n{self.ctx.shared.task.seed_instruction()}\n```"

    def on_proposal_end(self, event: Mapping[str, Any]) -> None:
        """Note a prompt before it is tried (GEPA's callback protocol)."""
        self._prompts.proposed = event["new_instructions"][COMPONENT]

    def should_stop(self, state: Any) -> bool:
        """Report the iteration that has ended, and return whether to stop (GEPA's stopping protocol)."""
        done = state.i + 1
        # GEPA calls this once before its first iteration and then after each, so step 0 is the seed prompt.
        self._wait_for(self._report(done, self._prompts.after(done, state)))
        for count, limit in (
            (done, self.settings.iterations),
            (state.total_num_evals, self.settings.metric_calls),
        ):
            if limit is not None and count >= limit:
                return True
        return not self._wait_for(self.rollouts.affords(self.settings.minibatch))

    def stop(self) -> None:
        """Make GEPA's thread end at its next call."""
        # A thread cannot be cancelled; its next or pending call raises an error that ends GEPA.
        with self._handing_over:
            self.failure = self.failure or _Stopped()
            if self._pending is not None:
                self._pending.cancel()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and wait for it in this thread. After a failure, all calls fail."""
        with self._handing_over:  # so that `stop` sees either no call or a pending one
            if self.failure is not None:
                work.close()
                raise self.failure
            self._pending = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            result: T = self._pending.result()
        except CancelledError:
            self.failure = self.failure or _Stopped()
            raise self.failure from None
        except BaseException as error:
            self.failure = self.failure or error
            raise
        return result

    async def _report(self, done: int, state: GepaState) -> None:
        reported = asyncio.Event()
        self.turns.put_nowait((done, state, reported))
        await reported.wait()


async def optimise(bridge: Bridge, run: Callable[[Bridge], None]) -> AsyncGenerator[tuple[int, GepaState], None]:
    """Run GEPA in a thread and yield its state after each iteration; iteration 0 is the seed prompt's evaluation.

    GEPA waits while the consumer works. Raises any error of a call. run: calls the package.
    """
    work = asyncio.create_task(asyncio.to_thread(run, bridge))
    try:
        while True:
            turn = asyncio.create_task(bridge.turns.get())
            # The thread may end without another turn, through an error or one of GEPA's own stopping rules.
            await asyncio.wait({work, turn}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                break
            done, state, reported = turn.result()
            yield done, state
            reported.set()
        await work
    except Exception as error:
        # The original error, whatever GEPA turned it into.
        raise bridge.failure or error from None
    finally:
        bridge.stop()
        turn.cancel()
        await asyncio.gather(work, turn, return_exceptions=True)


@dataclass
class Loader:
    """The examples that still take part, by index (GEPA's data loader protocol)."""

    _rollouts: Rollouts
    _examples: Sequence[Any]

    def all_ids(self) -> list[int]:
        """Return the indices."""
        return [index for index, example in enumerate(self._examples) if self._rollouts.takes_part(example)]

    def fetch(self, ids: Sequence[int]) -> list[Any]:
        """Return the examples at the indices."""
        return [self._examples[index] for index in ids]

    def __len__(self) -> int:
        return len(self.all_ids())
