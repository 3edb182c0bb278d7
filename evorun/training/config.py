"""Settings of training for every method: the adapter, the optimiser, checkpoints and processes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from evorun.errors import ConfigError
from evorun.fields import Checked, NonNegativeFloat, NonNegativeInt, OneOf, PositiveFloat, PositiveInt
from evorun.models.devices import check_devices
from evorun.models.urls import checked_url

BACKENDS = ("trl", "tinker")
WEIGHTS = ("lora", "full")
REFERENCES = ("device", "cpu")
PRECISIONS = ("auto", "float32", "bfloat16")
TRANSFERS = ("auto", "ipc", "nccl", "folder")
SHARDINGS = ("fsdp2", "zero3")
QUANTISATIONS = ("nf4", "int8")
SCHEDULED_BY = ("optimiser_step", "batch")
SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")


@dataclass(kw_only=True)
class TrainingConfig(Checked):
    """Schema of `conf/training/*.yaml`; those files give each default and its source."""

    section = "training"

    name: str
    backend: Annotated[str, OneOf(BACKENDS)]
    """trl: on this machine, with TRL and PEFT. tinker: on a server that speaks Tinker's API (`training=tinker`)."""
    base_url: str | None
    """Address of that server; null: that of engine=tinker, else TINKER_BASE_URL, else Thinking Machines' own."""
    ttl_days: PositiveInt | None
    """Days after which that server deletes the run's checkpoints and snapshots; null: never."""
    weights: Annotated[str, OneOf(WEIGHTS)]
    """lora: an adapter on frozen weights. full: all weights."""
    reference: Annotated[str, OneOf(REFERENCES)]
    """Place of the reference policy's weights between uses. With weights=lora it has none: it is the model with its
    adapter off. With weights=full it is a frozen copy, which is loaded if the method needs it. device: the trainer's
    GPU; cpu: main memory, from which they move to the GPU and back at each use: slower, with less GPU memory."""
    rank: PositiveInt
    alpha: PositiveFloat
    """The adapter's update is scaled by alpha / rank."""
    dropout: Annotated[float, Meta(ge=0, le=0.9999)]
    target_modules: list[str]
    """Names of the layers that get an adapter; all-linear: every linear layer and a sparse model's experts, but not the
    output layer and routers, which need their names ([all-linear, lm_head]). experts: those alone."""
    learning_rate: PositiveFloat
    beta1: Annotated[float, Meta(ge=0, le=0.9999)]
    beta2: Annotated[float, Meta(ge=0, le=0.9999)]
    epsilon: PositiveFloat
    weight_decay: NonNegativeFloat
    schedule: Annotated[str, OneOf(SCHEDULES)]
    """Schedule of the learning rate over all steps that the method may make."""
    schedule_by: Annotated[str, OneOf(SCHEDULED_BY)]
    """optimiser_step: the rate changes at each step of the optimiser; batch: it stays the same for all steps on a batch
    (epochs, minibatches)."""
    warmup_steps: NonNegativeInt
    """Number of warm-up steps, in units of `schedule_by`."""
    max_grad_norm: PositiveFloat | None
    """Longer gradients are clipped to this norm; null: no clipping."""
    micro_batch: PositiveInt
    """Maximum number of sequences in one forward and backward pass of one process. Trades memory for speed, and changes
    results only by rounding."""
    micro_batch_tokens: PositiveInt
    """The same in tokens, including padding; a pass has at least one sequence."""
    precision: Annotated[str, OneOf(PRECISIONS)]
    """auto: bfloat16 mixed precision on a GPU, float32 on a CPU."""
    quantise: Annotated[str, OneOf(QUANTISATIONS)] | None
    """Bits of the frozen weights under an adapter, by bitsandbytes. nf4: 4 (QLoRA, Dettmers et al. 2023); int8: 8, with
    activations of 8 bits too (LLM.int8(), Dettmers et al. 2022). null: those of `precision`."""
    gradient_checkpointing: bool | None
    """Recompute activations in the backward pass: slower, with less memory. null: only on a GPU."""
    save_every: PositiveInt
    """Steps between checkpoints."""
    keep: PositiveInt
    """Number of checkpoints to keep (the newest ones)."""
    num_processes: PositiveInt | None
    """Processes that share each batch: one per GPU, or this many on the CPU. `accelerate launch` starts several. null:
    one per GPU that the plan gives the trainer (`evorun plan` shows it), one on the CPU."""
    hang_timeout: PositiveFloat | None
    """Seconds without progress of any process (a pass, a decoded token), after which the run ends and names the process
    that hangs; `start_timeout` limits imports. null: wait for ever."""
    max_lag: NonNegativeInt
    """Number of steps by which rollouts run ahead of the updates, K. 0: rollouts and updates alternate. K: the rollouts
    of step s have the weights after step s - 1 - K, and begin as soon as these are there; importance ratios (the
    sampler's log-probabilities) correct for that. Useful with engine=vllm or server on other GPUs."""
    devices: list[int] | None
    """GPUs of the processes, one each, numbered as the run's process sees them; null: those of the plan. With several
    nodes of 8 GPUs each, GPU 9 is the second one of the second node."""
    shard: Annotated[str, OneOf(SHARDINGS)] | None
    """fsdp2: each of several processes holds its part of weights, gradients and optimiser, by PyTorch's FSDP2. zero3:
    the same by DeepSpeed's ZeRO stage 3. null: each holds all of them."""
    offload: bool | None
    """Keep weights and optimiser in main memory while the trainer waits, for engines on its GPU. null: where the plan
    puts an engine that sleeps there, and the trainer does not answer for the policy itself."""
    sync_folder: str | None
    """Folder for the weights that another engine reads after an update; null: the run's own. One on a RAM disk
    (/dev/shm) spares a slow disk. The engine must see it under the same name."""
    weight_transfer: Annotated[str, OneOf(TRANSFERS)]
    """The way of all weights to vLLM after an update (weights=full). ipc: through memory of a GPU that both use. nccl:
    from GPU to GPU. folder: through `sync_folder`. auto: ipc where vLLM is on the trainer's GPUs, nccl where it has
    others, folder where neither can be. An adapter's weights always take a folder."""
    accelerate_config: str | None
    """A file for `accelerate launch --config_file` (DeepSpeed, FSDP); null: its defaults. What it says of machines does
    not count."""
    nodes: PositiveInt | None
    """Nodes that share the processes; null: those of the SLURM job that the run is in, else one. All nodes must see the
    run directory, the weights and evorun's installation under the same paths."""
    launch_command: str | None
    """Command before the trainer's own that starts it once on each node, such as `mpirun -npernode 1`. null: srun in a
    SLURM job; elsewhere the run says which command to start on the other nodes."""
    start_timeout: PositiveFloat | None
    """Seconds for all processes to start and to reach one another, before any loads the model; null: wait for ever."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # transformers would silently ignore the steps.
        if self.warmup_steps and self.schedule == "constant":
            raise ConfigError(
                f"training.warmup_steps: expected 0 with training.schedule=constant, got {self.warmup_steps}; "
                "constant_with_warmup has one"
            )
        if self.base_url is not None:
            self.base_url = checked_url("training.base_url", self.base_url)
        check_devices("training.devices", self.devices)
        fixed = self.num_processes is not None and self.accelerate_config is None
        if self.devices is not None and fixed and len(self.devices) != self.num_processes:
            raise ConfigError(
                f"training.devices: expected a GPU for each of training.num_processes={self.num_processes}, got "
                f"{self.devices}"
            )
        if self.shard is not None and self.accelerate_config is not None:
            raise ConfigError(
                "training.shard: expected null with training.accelerate_config, which says itself what is sharded, got "
                f"{self.shard}"
            )
        if self.shard is not None and self.num_processes == 1:
            raise ConfigError(
                f"training.num_processes: expected at least 2 with training.shard={self.shard}, got 1; null leaves "
                "their number to the plan"
            )
        if self.quantise is not None and self.weights == "full":
            raise ConfigError(
                "training.quantise: expected null with training.weights=full, since quantised weights have no "
                f"gradient, got {self.quantise}"
            )
        if self.quantise is not None and self.shard is not None:
            raise ConfigError(
                f"training.quantise: expected null with training.shard={self.shard}, got {self.quantise}: each process "
                "holds all quantised weights"
            )
        if self.offload and (self.accelerate_config is not None or self.shard is not None):
            other = "accelerate_config" if self.shard is None else f"shard={self.shard}"
            raise ConfigError(
                f"training.offload: expected false or null with training.{other}, got true; weights are then divided "
                "among the processes as DeepSpeed or FSDP have it"
            )
        if not self.target_modules:
            raise ConfigError("training.target_modules: expected names of modules, got an empty list")
        if self.sync_folder is not None and not Path(self.sync_folder).expanduser().is_dir():
            raise ConfigError(f"training.sync_folder: expected a folder, found none at {self.sync_folder}")
        if self.accelerate_config is not None and not Path(self.accelerate_config).expanduser().is_file():
            raise ConfigError(f"training.accelerate_config: expected a file, found none at {self.accelerate_config}")

    @property
    def former_versions(self) -> int:
        """Number of former weights that calls may ask for during an update: for reflections, and for rollouts."""
        return max(1, self.max_lag)

    @property
    def names_experts(self) -> bool:
        """True if the adapter would change a sparse model's joined gate and up projections, by the targets' names."""
        names = {target.rpartition(".")[2] for target in self.target_modules}
        return not names.isdisjoint(("all-linear", "experts", "gate_up_proj", "gate_proj", "w1"))

    @property
    def processes(self) -> int:
        """Number of the trainer's processes: as set, else one per GPU of `devices`, else one per node of `nodes`."""
        if self.num_processes is not None:
            return self.num_processes
        if self.devices is not None and self.accelerate_config is None:
            return len(self.devices)
        return self.nodes or 1
