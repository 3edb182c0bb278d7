"""How weights are trained, whatever the method: the adapter, the optimiser, checkpoints and processes."""

from dataclasses import dataclass, field
from pathlib import Path

from evorun.errors import ConfigError, above, at_least, one_of, within

WEIGHTS = ("lora", "full")
PRECISIONS = ("auto", "float32", "bfloat16")
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")


@dataclass
class TrainingConfig:
    """Schema of `conf/training/*.yaml`, which give the source of each default."""

    name: str = "lora"
    weights: str = "lora"
    """lora: an adapter beside frozen weights. full: all weights (method=sft only: with an adapter the reference policy
    is the same weights with the adapter off)."""
    rank: int = 32
    alpha: float = 32.0
    """The adapter's update is scaled by alpha / rank."""
    dropout: float = 0.0
    target_modules: list[str] = field(default_factory=lambda: ["all-linear"])
    """Names of the modules that get an adapter; all-linear: every linear layer but the output's."""
    learning_rate: float = 4e-5
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup_steps: int = 0
    max_grad_norm: float = 1.0
    micro_batch: int = 10
    """Sequences in one forward and backward pass of one process, at most: a matter of time and memory (only the loss
    bnpo, which weighs each pass by itself, depends on it beyond rounding)."""
    precision: str = "auto"
    """auto: bfloat16 mixed precision on a GPU, float32 on a CPU."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: slower, in less memory."""
    save_every: int = 10
    """Steps between checkpoints."""
    keep: int = 2
    """Checkpoints that are kept, the newest ones."""
    num_processes: int = 1
    """Processes that share each batch, one a GPU, or that many on the CPU; several are started by `accelerate
    launch`."""
    accelerate_config: str | None = None
    """A file for `accelerate launch --config_file` (DeepSpeed, FSDP, several machines); null: its defaults."""

    def __post_init__(self) -> None:
        """Raise ConfigError, naming the key, when a value is out of range."""
        one_of("training.weights", self.weights, WEIGHTS)
        one_of("training.precision", self.precision, PRECISIONS)
        one_of("training.schedule", self.schedule, SCHEDULES)
        for key in ("rank", "micro_batch", "save_every", "keep", "num_processes"):
            at_least(f"training.{key}", getattr(self, key), 1)
        for key in ("weight_decay", "warmup_steps"):
            at_least(f"training.{key}", getattr(self, key), 0)
        for key in ("alpha", "learning_rate", "epsilon", "max_grad_norm"):
            above(f"training.{key}", getattr(self, key), 0)
        for key in ("beta1", "beta2", "dropout"):
            within(f"training.{key}", getattr(self, key), 0, 0.9999)
        if self.warmup_steps and self.schedule == "constant":
            raise ConfigError(
                f"training.warmup_steps: expected 0 with training.schedule=constant, got {self.warmup_steps}; "
                "constant_with_warmup has one"
            )
        if not self.target_modules:
            raise ConfigError("training.target_modules: expected names of modules, got an empty list")
        if self.accelerate_config is not None and not Path(self.accelerate_config).expanduser().is_file():
            raise ConfigError(f"training.accelerate_config: expected a file, found none at {self.accelerate_config}")
