"""PPO on rows whose rewards and sampling log-probabilities are given: a critic, clipped losses, epochs over a batch.

An update scores the batch once, without gradients: log-probabilities under the policy and the reference policy, and
the critic's values. `evorun.training.advantages` estimates advantages and returns from these. Epochs follow, each with
one optimiser step per minibatch. The losses are means over all tokens or states of a step, however they are divided
into passes and processes.

Imports TRL: only the trainer process imports this module.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object, save_fsdp_optimizer
from msgspec import structs
from safetensors.torch import load_file, save_file
from transformers.trainer import SCHEDULER_NAME

from evorun.training.advantages import LARGEST_LOG_RATIO, ScoredEpisode, estimate
from evorun.training.batches import NOTHING, Pass, minibatches, padded, passes
from evorun.training.critic import ActorCritic, Critic
from evorun.training.examples import NO_EXAMPLE, Example, ExamplePass, pad_examples, states_at, tokens_at
from evorun.training.ranks import RANK
from evorun.training.rows_trainer import LOGPROB_TOLERANCE, RowsTrainer
from evorun.training.serving import Serving, seed_everything
from evorun.training.sharding import begin_sharding, gather_trained, put_trained
from evorun.training.value_head import ValueHead
from evorun.training.wire import Job, ProximalPolicy, Row, TokenAdvantages

SHARDED = "policy_and_critic.safetensors"
"""File in a checkpoint with the trained weights of both, where processes share them."""


class ProximalTrainer(RowsTrainer):
    """Trains policy and critic by proximal policy optimisation."""

    SUMS = ("policy_loss", "value_loss", "entropy", "clip_ratio", "value_clip_ratio")

    def __init__(self, job: Job, objective: ProximalPolicy, model: Any, tokenizer: Any, serving: Serving) -> None:
        seed_everything(job.seed)
        settings = objective.settings
        critic = Critic(job, model, kind=settings.critic, popart=settings.popart)
        counts = {"batches": objective.steps, "steps_per_batch": settings.epochs * settings.minibatches}
        # No dropout: a policy's probabilities must not differ between passes.
        temperature = objective.temperature
        super().__init__(job, serving, model, tokenizer, **counts, temperature=temperature, disable_dropout=True)
        self._settings = settings
        self.epochs = settings.epochs
        self.model = self.model_wrapped = ActorCritic(self.model, critic).to(self.accelerator.device)
        self.advantages: list[TokenAdvantages | None] = []
        """Advantages of the batch's rows, see `Figures`."""
        self._batch_figures: dict[str, float] = {}
        """Figures of the batch, reported with its first step."""

    @property
    def policy(self) -> Any:
        return self._both.policy

    @property
    def _head(self) -> ValueHead:
        return self._both.critic.head

    @property
    def _both(self) -> ActorCritic:
        both: ActorCritic = self.accelerator.unwrap_model(self.model)
        return both

    # --- a batch ---

    def _next_batch(self) -> list[list[ExamplePass]]:
        train = self._serving.next_training()
        # This makes the order of rows a function of the step, so that a resumed run repeats it. All processes share it.
        rng = np.random.default_rng((self._job.seed, train.number))
        seed_everything(self._job.seed, train.number, self.accelerator.process_index)
        if train.rewards_changed and self._settings.reset_critic:
            for parameter in self._head.parameters():
                self.optimizer.state.pop(parameter, None)
            self._head.reset()
        examples = self._examples(train.rows)
        epochs = [minibatches(examples, self._settings.minibatches, rng) for _ in range(self._settings.epochs)]
        return [self._passes(part) for parts in epochs for part in parts]

    def _passes(self, part: Sequence[Example]) -> list[ExamplePass]:
        """Return this process's passes of an optimiser step."""
        accelerator, training = self.accelerator, self._job.training
        tokens, states = sum(len(example.old) for example in part), sum(len(example.values) for example in part)
        dealt = passes(part, accelerator.num_processes, training.micro_batch, training.micro_batch_tokens, NO_EXAMPLE)
        return [
            pad_examples(by_process[accelerator.process_index], tokens, states, accelerator.device)
            for by_process in dealt
        ]

    def _examples(self, rows: Sequence[Row]) -> list[Example]:
        """Return the rows as examples of this update, in an order that does not depend on the number of processes."""
        self.advantages = [None] * len(rows)
        # By identity, since passes reorder the rows.
        numbers = {id(row): number for number, row in enumerate(rows) if any(row.learned)}
        if not numbers:
            return []
        accelerator, training = self.accelerator, self._job.training
        learned = [row for row in rows if id(row) in numbers]
        dealt = passes(learned, accelerator.num_processes, training.micro_batch, training.micro_batch_tokens, NOTHING)
        own = [by_process[accelerator.process_index] for by_process in dealt]
        scored = gather_object([self._score(own)])
        pairs = [
            (row, scored[process][index][place])
            for index, by_process in enumerate(dealt)
            for place, of_processes in enumerate(zip(*by_process, strict=True))
            for process, row in enumerate(of_processes)
            if row is not NOTHING
        ]
        estimates, self._batch_figures = estimate([own for _, own in pairs], self._settings)
        for (row, _), estimated in zip(pairs, estimates, strict=True):
            of_tokens = estimated.advantages
            self.advantages[numbers[id(row)]] = TokenAdvantages(float(of_tokens.mean()), float(of_tokens.std()))
        # The value loss and its clipping use the scale of the head's outputs.
        self._head.adapt(np.concatenate([estimated.returns for estimated in estimates]))
        self._batch_figures |= {"value_scale": self._head.scale} if self._settings.popart is not None else {}
        return [
            Example(
                **structs.asdict(row),
                old=own.old,
                values=self._head.outputs(own.values[: len(estimated.returns)]),
                estimate=estimated._replace(returns=self._head.outputs(estimated.returns)),
            )
            for (row, own), estimated in zip(pairs, estimates, strict=True)
        ]

    def _score(self, dealt: Sequence[Sequence[Row]]) -> list[list[ScoredEpisode]]:
        """Score the rows of each pass with policy, reference policy and critic."""
        padded_rows = [padded(rows, lambda _: 0.0, self.accelerator.device) for rows in dealt]
        references: Sequence[torch.Tensor | None] = [None] * len(dealt)
        if self._settings.kl:  # with 0, the divergence does not affect the reward
            references = self.score_by_reference((inputs.ids, inputs.learned) for inputs in padded_rows)
        return [
            self._score_rows(rows, inputs, reference)
            for rows, inputs, reference in zip(dealt, padded_rows, references, strict=True)
        ]

    def _score_rows(self, rows: Sequence[Row], inputs: Pass, reference: torch.Tensor | None) -> list[ScoredEpisode]:
        """Score the rows of a pass. reference: log-probabilities; None: the policy's own."""
        ids, learned = inputs.ids, inputs.learned
        RANK.note("scores of the batch", rows=ids.shape[0], tokens=ids.numel())
        with torch.no_grad(), self.accelerator.autocast():
            outputs = self._both(ids, learned)
        tensors = (outputs.logprobs, outputs.logprobs if reference is None else reference, outputs.values)
        logprobs, references, value_outputs = (tensor.double().cpu().numpy() for tensor in tensors)
        values = self._head.values(value_outputs)
        scored = []
        for index, row in enumerate(rows):
            at = tokens_at(row) - 1  # outputs at a position are for the next token
            own_logprobs, sampler = logprobs[index, at], np.array(row.logprobs)[np.flatnonzero(row.learned)]
            old = np.where(np.abs(own_logprobs - sampler) < LOGPROB_TOLERANCE, own_logprobs, sampler)
            scored.append(
                ScoredEpisode(row.reward, own_logprobs, old, references[index, at], values[index, states_at(row)])
            )
        return scored

    # --- the loss ---

    def compute_loss(
        self, model: Any, inputs: ExamplePass, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Return this process's part of the loss (equations 7 and 9 of "Proximal policy optimization algorithms")."""
        with self.accelerator.autocast():
            logprobs, entropy, values = model(inputs.ids, inputs.learned)
        # The policy's outputs at a position are for the next token.
        learned, weights, advantages, old = (
            tensor[:, 1:] for tensor in (inputs.learned, inputs.weights, inputs.advantages, inputs.old)
        )
        log_ratio = torch.where(learned, logprobs - old, 0.0).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        ratio, clip = log_ratio.exp(), self._settings.clip
        loss, clipped_loss = -advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip)
        policy_loss = (torch.maximum(loss, clipped_loss) * weights).sum()

        error, value_clip = (values - inputs.returns).square(), self._settings.value_clip
        clipped_error = error
        if value_clip is not None:
            near = values.clamp(inputs.values - value_clip, inputs.values + value_clip)
            clipped_error = (near - inputs.returns).square()
        value_loss = 0.5 * (torch.maximum(error, clipped_error) * inputs.state_weights).sum()

        beyond = ((clipped_loss > loss) * weights).sum()
        value_beyond = ((clipped_error > error) * inputs.state_weights).sum()
        figures = [policy_loss, value_loss, (entropy * weights).sum(), beyond, value_beyond]
        self._sums += torch.stack(figures).detach()
        # Training averages gradients over the processes, but each process has only a part of the sums.
        parts = self.accelerator.num_processes
        whole: torch.Tensor = (policy_loss + self._settings.value_weight * value_loss) * parts
        return whole

    def _figures(self, sums: dict[str, float]) -> dict[str, float]:
        figures, self._batch_figures = {**sums, **self._batch_figures}, {}
        return figures

    # --- checkpoints: the policy's adapter as TRL writes it, the critic beside it ---

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        both, self.model = self.model, self.policy
        try:
            super()._save(output_dir, state_dict)
        finally:
            self.model = both

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self.is_fsdp_enabled:
            trained = gather_trained(self._both)
            if self.args.should_save:
                save_file(trained, folder / SHARDED)
        elif self.args.should_save:
            self._both.critic.save(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self.is_fsdp_enabled:
            put_trained(self._both, load_file(Path(resume_from_checkpoint) / SHARDED))
            return
        super()._load_from_checkpoint(resume_from_checkpoint, self.policy)
        self._both.critic.load(Path(resume_from_checkpoint))

    # --- with training.shard=fsdp2 ---

    def _prepare_for_training(self, *arguments: Any) -> Any:
        prepared = super()._prepare_for_training(*arguments)
        if self.is_fsdp_enabled:
            begin_sharding(self._both, precise=self._head)
        return prepared

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        # transformers would write the frozen weights of policy and critic, too.
        plugin = self.accelerator.state.fsdp_plugin
        save_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER_NAME)
