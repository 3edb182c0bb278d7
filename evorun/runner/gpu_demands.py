"""The needs of a run's engines and trainer for GPUs, by its configuration and the models' sizes."""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial, singledispatch
from pathlib import Path

from evorun.errors import ConfigError, DataError
from evorun.models.architecture import Architecture, read_architecture
from evorun.models.config import EngineConfig, ServedModel
from evorun.models.devices import Gpu
from evorun.models.sharing import find_shared
from evorun.models.transformers.engine import TransformersConfig
from evorun.models.vllm.engine import VllmConfig
from evorun.runner.call_counts import Part
from evorun.runner.estimates import (
    DECODING,
    DECODING_BY_TRANSFORMERS,
    PEAK,
    TRAINING,
    count_calls,
    count_training_tokens,
)
from evorun.runner.memory import (
    GROUP,
    PROMPT_TOKENS,
    GpuMemory,
    decoding_memory,
    pass_tokens,
    serving_memory,
    training_memory,
)
from evorun.runner.planner import USABLE, Demand, count_holders
from evorun.runner.settings import RunConfig
from evorun.runner.training_runs import serving, trainer_engine
from evorun.runs.spending import GOLD
from evorun.training.config import TrainingConfig
from evorun.training.wire import PolicyGradient, ProximalPolicy

TRAINER = "training"
"""The trainer's key among demands: its configuration group."""
WIDTHS = (1, 2, 4, 8, 16)
"""GPUs that may share a copy of a model."""


class UnknownSizes(Exception):
    """A model whose config.json is not known here, so that nothing can be planned; its text names the model."""


def list_demands(config: RunConfig, gpus: Sequence[Gpu], *, download: bool = False) -> list[Demand]:
    """Return the demands of a run's engines and trainer; none for engines elsewhere, or without weights.

    download: a config.json may come from the hub. Raises UnknownSizes, and ConfigError for a number of
    GPUs that cannot share a model.
    """
    widths = [width for width in WIDTHS if width <= max(len(gpus), 1)]
    work = _estimate_work(config, download=download)
    demands = []
    for served, key, roles in group_by_engine(config):
        if config.training is not None and key == "engine" and served.engine.is_trainer:
            continue  # the trainer answers itself
        if not served.engine.loads_weights or find_shared(served) is not None:  # in this process
            continue
        shape = _read_shape(served, download=download)
        engine = serving(config) if key == "engine" else served.engine
        if key == "engine":
            roles = tuple(role for role in roles if role not in _answered_by_trainer(config))
        demand = _demand(engine, served, shape, config, widths)
        demands.append(dataclasses.replace(demand, key=key, roles=roles, work=work[served.model.name]))
    if config.training is not None and _trains_here(config):
        demands.append(_training_demand(config, config.training, gpus, work[TRAINER], download=download))
    return demands


def group_by_engine(config: RunConfig) -> list[tuple[ServedModel, str, tuple[str, ...]]]:
    """Return the models that a run asks, each with the key of its engine and its roles; equal ones share an engine."""
    asked = dict.fromkeys(("policy", *(role.model for role in config.method.active_roles.values())))
    if config.task.task_class.graded_by_opinion:
        asked[GOLD] = None
    policy = ServedModel(config.model, config.engine)
    found: dict[str, tuple[ServedModel, list[str]]] = {"engine": (policy, [])}
    for role in asked:
        names = [name for name in config.others if name.partition(".")[0] == role]
        for name in names or ["policy"]:
            served = config.others.get(name, policy)
            key = next((key for key, (other, _) in found.items() if other == served), f"{name}_engine")
            found.setdefault(key, (served, []))[1].append(name if name in config.others else role)
    return [(served, key, tuple(roles)) for key, (served, roles) in found.items()]


def _trains_here(config: RunConfig) -> bool:
    """Tell whether a run's trainer uses GPUs; that of a simulated or replayed run does not exist."""
    elsewhere = config.engine.simulated or config.engine.replays or config.engine.on_tinker
    return not elsewhere and trainer_engine(config.engine).loads_weights


def _read_shape(served: ServedModel, *, download: bool) -> Architecture:
    shape = read_architecture(served.model, download=download)
    if shape is None:
        raise UnknownSizes(served.model.name)
    return shape


@singledispatch
def _demand(
    engine: EngineConfig, served: ServedModel, shape: Architecture, config: RunConfig, widths: Sequence[int]
) -> Demand:
    raise NotImplementedError(engine.name)


@_demand.register
def _(engine: VllmConfig, served: ServedModel, shape: Architecture, config: RunConfig, widths: Sequence[int]) -> Demand:
    model = served.model
    pipeline = engine.pipeline_size
    group = GROUP.get(model.quantization or "", 1)
    splits = [width for width in widths if width == 1 or shape.splits_into(width, group=group)]
    if (given := engine.tensor_parallel_size) is not None:
        if given > 1 and not shape.splits_into(given, group=group):
            raise ConfigError(
                f"engine.tensor_parallel_size: expected a number that divides {model.name}'s {shape.heads} attention "
                f"heads and its layers' widths, got {given}"
            )
        splits = [given]
    context = engine.max_model_len or model.context_length
    value_bytes = 1 if str(engine.extra_args.get("kv_cache_dtype", "auto")).startswith("fp8") else 2
    needs = {
        width * pipeline: serving_memory(
            shape,
            model,
            gpus=width * pipeline,
            context=context,
            sequences=engine.max_num_seqs,
            lora_rank=engine.lora_rank or 0,
            held_adapters=engine.held_adapters,
            value_bytes=value_bytes,
        )
        for width in splits
    }
    devices = None if engine.devices is None else tuple(engine.devices)
    return Demand(
        key="",
        roles=(),
        model=model.name,
        needs=needs,
        devices=devices,
        copies=engine.replicas,
        share=engine.gpu_memory_utilization,
        sleeps=engine.sleep,
        context=context,
    )


@_demand.register
def _(
    engine: TransformersConfig, served: ServedModel, shape: Architecture, config: RunConfig, widths: Sequence[int]
) -> Demand:
    needs = {
        width: decoding_memory(
            shape,
            served.model,
            gpus=width,
            tokens=_longest_sequence(config, served.model.context_length),
            sequences=engine.max_batch_size,
            prefix_tokens=engine.prefix_cache_tokens,
        )
        for width in widths
    }
    return Demand(
        key="",
        roles=(),
        model=served.model.name,
        needs=needs,
        expands=False,
        devices=None if engine.devices is None else tuple(engine.devices),
        copies=1,
        advice="lower its max_batch_size",
    )


def _training_demand(
    config: RunConfig, training: TrainingConfig, gpus: Sequence[Gpu], work: float, *, download: bool
) -> Demand:
    own = ServedModel(config.model, config.engine)
    shape = _read_shape(own, download=download)
    method, learns = config.raw["method"], config.method.learns_from_rewards
    longest = _longest_sequence(config, config.model.context_length)
    processes = training.num_processes or min(2, len(gpus))
    usable = USABLE * max(gpu.memory for gpu in gpus)
    objective = config.method.make_objective(Path()) if learns else None  # that of a fine-tuning reads data
    drawn = method.get("prompts") or method.get("draws") or 1
    groups = method["states"] if config.method.restarts else method.get("problems_per_step", 1) * drawn
    rows = groups * method["group"] // method["minibatches"] if learns else method["batch"]
    own_engine = trainer_engine(config.engine)
    answered = _answered_by_trainer(config)
    decodes = bool(answered)
    penalised = isinstance(objective, ProximalPolicy | PolicyGradient) and objective.settings.kl > 0
    reference = penalised or any(role != "policy" for role in answered)

    def need(settings: TrainingConfig, sequences: int, processes: int) -> GpuMemory:
        decoding = None
        if decodes:
            kept = own_engine.prefix_cache_tokens
            decoding = decoding_memory(
                shape, config.model, gpus=1, tokens=longest, sequences=sequences, prefix_tokens=kept
            )
        tokens = pass_tokens(settings, longest if learns else min(method["max_length"], config.model.context_length))
        critic = objective.settings.critic if isinstance(objective, ProximalPolicy) else None
        return training_memory(
            shape,
            settings,
            processes=processes,
            pass_tokens=tokens,
            critic=critic,
            decoding=decoding,
            reference=reference,
        )

    def allows(copies: int) -> bool:
        # fine-tuning needs equal parts of a batch
        return copies <= rows and (learns or rows % copies == 0)

    if training.shard is not None:
        processes = training.processes
        if processes == 1:  # not set: the fewest that hold the model together
            if len(gpus) < 2:
                raise ConfigError(
                    f"training.shard: expected at least 2 GPUs to share the weights with {training.shard}, got "
                    f"{len(gpus)}; on one GPU training.quantise=nf4 saves memory"
                )
            possible = [number for number in range(2, len(gpus) + 1) if allows(number)] or [2]
            fitting = (n for n in possible if need(training, own_engine.max_batch_size, n).total <= usable)
            processes = next(fitting, possible[-1])
    demand = Demand(
        key=TRAINER,
        roles=("trainer", *answered),
        model=config.model.name,
        needs={1: need(training, own_engine.max_batch_size, processes)},
        work=work,
        trains=True,
        expands=False,
        offloads=(
            training.shard is None and not config.engine.is_trainer if training.offload is None else training.offload
        ),
        devices=None if training.devices is None else tuple(training.devices),
        copies=training.num_processes if training.shard is None else processes,
        allowed_copies=allows,
        advice=_advise(
            training, own_engine, partial(need, processes=processes), usable, decodes=decodes, reference=reference
        ),
    )
    if training.accelerate_config is None:
        return demand
    # DeepSpeed and FSDP divide the memory in their own ways: the file decides, and the GPUs are the trainer's.
    return dataclasses.replace(demand, needs={1: GpuMemory(0.0)}, copies=training.num_processes or 1, share=USABLE)


def _answered_by_trainer(config: RunConfig) -> tuple[str, ...]:
    """Return the roles whose completions come from the trainer."""
    if config.training is None:
        return ()
    roles = next((roles for _, key, roles in group_by_engine(config) if key == "engine"), ())
    if config.engine.is_trainer:
        return roles
    # An engine whose weights are replaced answers for the policy alone.
    return tuple(role for role in roles if role != "policy") if config.training.weights == "full" else ()


def _advise(
    training: TrainingConfig,
    engine: TransformersConfig,
    need: Callable[[TrainingConfig, int], GpuMemory],
    usable: float,
    *,
    decodes: bool,
    reference: bool,
) -> str:
    """Return settings that would fit: smaller batches with the fewest halvings, and another place for the reference.

    decodes: true if the trainer answers requests. reference: true if the run needs a reference policy.
    """
    copied = reference and training.weights == "full"
    places = dict.fromkeys((training.reference, "cpu" if copied else training.reference))
    for halvings in range(11):
        for place, own in itertools.product(places, range(halvings + 1 if decodes else 1)):
            smaller = dataclasses.replace(
                training,
                micro_batch=max(1, training.micro_batch >> halvings - own),
                micro_batch_tokens=max(1, training.micro_batch_tokens >> halvings - own),
                reference=place,
            )
            sequences = max(1, engine.max_batch_size >> own)
            if need(smaller, sequences).total <= usable:
                named = {
                    "training.reference": (training.reference, place),
                    "training.micro_batch": (training.micro_batch, smaller.micro_batch),
                    "training.micro_batch_tokens": (training.micro_batch_tokens, smaller.micro_batch_tokens),
                    "engine.max_batch_size": (engine.max_batch_size, sequences),
                }
                return " ".join(f"{key}={to}" for key, (was, to) in named.items() if to != was) + " would fit"
    kept, unrounded = (
        need(settings, 1).weights + need(settings, 1).training
        for settings in (smaller, dataclasses.replace(smaller, quantise=None))
    )
    others = []
    if training.weights != "full" and training.quantise is None and training.shard is None:
        others.append("training.quantise=nf4")
    if training.shard is None:
        over = f" over {count_holders(unrounded, usable)} such GPUs or more" if unrounded > usable else ""
        others.append(f"training.shard=fsdp2{over}{' without training.quantise' if training.quantise else ''}")
    tried = f"try {', '.join(others)}, " if others else ""
    if kept > usable:  # whatever the batch
        return f"weights and optimiser alone do not fit: {tried or 'take more GPUs, '}or train a smaller model"
    return f"no smaller batch fits: lower method.max_tokens, {tried}or train a smaller model"


def _longest_sequence(config: RunConfig, context: int) -> int:
    """Return the tokens of the longest prompt and completion: every turn's limit, and an assumed prompt."""
    method = config.raw["method"]
    limits: list[int] = [method.get(key) or 0 for key in ("max_tokens", "eval_max_tokens", "judge_max_tokens")]
    turns: int = config.raw["task"].get("max_turns", 1)
    return min(context, turns * max(limits) + PROMPT_TOKENS)


def _estimate_work(config: RunConfig, *, download: bool) -> Mapping[str, float]:
    """Return seconds of one H100 by model, and of the trainer; equal ones where a method's calls have no formula.

    Completions count, at the peaks' shares of docs/guides/costs.md; prompts do not.
    """
    shapes = {
        served.model.name: read_architecture(served.model, download=download)
        for served in (ServedModel(config.model, config.engine), *config.others.values())
    }
    try:
        parts: Sequence[Part] = count_calls({**config.raw, "model": {**config.raw["model"], "name": config.model.name}})
    except (ConfigError, DataError):  # as of a student, whose conversations its teacher has yet to write
        return defaultdict(lambda: 1.0)
    work: dict[str, float] = defaultdict(float)
    for part in parts:
        if (shape := shapes.get(part.model)) is not None:
            work[part.model] += 2 * shape.parameters.active * part.calls * part.max_tokens / (PEAK * DECODING)
    own = shapes[config.model.name]
    if config.training is not None and own is not None:
        tokens = count_training_tokens(config.raw, parts)
        work[TRAINER] = 6 * own.parameters.active * tokens / (PEAK * TRAINING)
        if config.engine.is_trainer:
            work[TRAINER] += work[config.model.name] * DECODING / DECODING_BY_TRANSFORMERS
    least = 1e-3 * max(work.values(), default=1.0)  # whoever is asked at all has some work
    return defaultdict(lambda: least, {name: max(seconds, least) for name, seconds in work.items()})
