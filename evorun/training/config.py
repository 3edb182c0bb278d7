"""Settings of training for every method: the adapter, the optimiser, checkpoints and processes."""

from dataclasses import dataclass
from pathlib import Path

from evorun.errors import ConfigError, above, at_least, one_of, within
from evorun.models.devices import check_devices

WEIGHTS = ("lora", "full")
PRECISIONS = ("auto", "float32", "bfloat16")
SCHEDULED_BY = ("optimiser_step", "batch")
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")


@dataclass(kw_only=True)
class TrainingConfig:
    """Schema of `conf/training/*.yaml`; those files give each default and its source."""

    name: str
    weights: str
    """lora: an adapter on frozen weights. full: all weights; only with method=sft, since the reference policy of other
    methods is the model with its adapter off."""
    rank: int
    alpha: float
    """The adapter's update is scaled by alpha / rank."""
    dropout: float
    target_modules: list[str]
    """Names of the modules that get an adapter; all-linear: every linear layer except the output layer, which needs its
    name ([all-linear, lm_head])."""
    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    schedule: str
    """Schedule of the learning rate over all steps that the method may make."""
    schedule_by: str
    """optimiser_step: the rate changes at each step of the optimiser; batch: it stays the same for all steps on a batch
    (epochs, minibatches)."""
    warmup_steps: int
    """Number of warm-up steps, in units of `schedule_by`."""
    max_grad_norm: float | None
    """Longer gradients are clipped to this norm; null: no clipping."""
    micro_batch: int
    """Maximum number of sequences in one forward and backward pass of one process. Trades memory for speed, and changes
    results only by rounding."""
    micro_batch_tokens: int
    """The same in tokens, including padding; a pass has at least one sequence. Has no effect on fine-tuning."""
    precision: str
    """auto: bfloat16 mixed precision on a GPU, float32 on a CPU."""
    gradient_checkpointing: bool | None
    """Recompute activations in the backward pass: slower, with less memory. null: only on a GPU."""
    save_every: int
    """Steps between checkpoints."""
    keep: int
    """Number of checkpoints to keep (the newest ones)."""
    num_processes: int
    """Processes that share each batch: one per GPU, or this many on the CPU. `accelerate launch` starts several."""
    max_lag: int
    """0: rollouts and updates alternate. 1: the rollouts of a step run during the previous step's update, without its
    weights; importance ratios correct for that (the sampler's log-probabilities). Useful with engine=vllm or server on
    other GPUs."""
    devices: list[int] | None
    """GPUs of the processes, one each, numbered as the run's process sees them; null: those that engine=vllm leaves
    free, if there are enough, else the first ones."""
    accelerate_config: str | None
    """A file for `accelerate launch --config_file` (DeepSpeed, FSDP, several machines); null: its defaults."""

    def __post_init__(self) -> None:
        one_of("training.weights", self.weights, WEIGHTS)
        one_of("training.precision", self.precision, PRECISIONS)
        one_of("training.schedule", self.schedule, SCHEDULES)
        one_of("training.schedule_by", self.schedule_by, SCHEDULED_BY)
        for key in ("rank", "micro_batch", "micro_batch_tokens", "save_every", "keep", "num_processes"):
            at_least(f"training.{key}", getattr(self, key), 1)
        for key in ("weight_decay", "warmup_steps"):
            at_least(f"training.{key}", getattr(self, key), 0)
        for key in ("alpha", "learning_rate", "epsilon", "max_grad_norm"):
            above(f"training.{key}", getattr(self, key), 0)
        within("training.max_lag", self.max_lag, 0, 1)  # no engine keeps the adapters of more updates
        for key in ("beta1", "beta2", "dropout"):
            within(f"training.{key}", getattr(self, key), 0, 0.9999)
        # transformers would silently ignore the steps.
        if self.warmup_steps and self.schedule == "constant":
            raise ConfigError(
                f"training.warmup_steps: expected 0 with training.schedule=constant, got {self.warmup_steps}; "
                "constant_with_warmup has one"
            )
        check_devices("training.devices", self.devices)
        if self.devices is not None and len(self.devices) != self.num_processes and self.accelerate_config is None:
            raise ConfigError(
                f"training.devices: expected a GPU for each of training.num_processes={self.num_processes}, got "
                f"{self.devices}"
            )
        if not self.target_modules:
            raise ConfigError("training.target_modules: expected names of modules, got an empty list")
        if self.accelerate_config is not None and not Path(self.accelerate_config).expanduser().is_file():
            raise ConfigError(f"training.accelerate_config: expected a file, found none at {self.accelerate_config}")
