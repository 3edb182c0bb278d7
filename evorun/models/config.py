"""Typed configuration of models and of the engines that serve them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from evorun.errors import ConfigError, at_least, one_of
from evorun.models.adapters import read_adapter
from evorun.models.base import LanguageModel

OTHER_ROLES = ("judge", "reward", "meta", "reflection", "gold")
"""Roles of models in a run beside the policy and its reference; a configuration gives such a role its own model and
engine with two groups (`judge=`, `judge_engine=`). `gold` grades for a task whose grade is a judge's opinion; no
method can ask it."""


@dataclass
class ModelConfig:
    """A model: its identity and the settings that every engine needs (schema of `conf/model/*.yaml`)."""

    name: str
    """Short name, as on the command line (`gemma3_4b`)."""
    id: str
    """Hub id (`google/gemma-3-4b-it`), the name a server knows, or the path of a local folder."""
    description: str = ""
    context_length: int = 8192
    """Longest prompt plus completion to allow, in tokens."""
    dtype: str = "auto"
    """auto | float32 | bfloat16 | float16."""
    quantization: str | None = None
    """Quantisation of the weights (awq, compressed-tensors, mxfp4, fp8), or null; engines read the details from the
    model folder."""
    adapter: str | None = None
    """Folder of a LoRA adapter in PEFT's format that the model is served under, or null."""
    system_role: str = "native"
    """native: the chat template takes a system message. merge: it does not, so its text goes in front of the first
    user message."""
    tool_role: str = "native"
    """native: the chat template takes a tool's answer. user: it does not, so the answer is a user message."""
    by_token_ids: bool = False
    """On a server, send every prompt as token ids made here, and read completions by theirs, as always where they are
    learned from: for a model whose turns are more than their text (channels), so that arms with and without training
    are asked alike. Takes the model's tokenizer here, and `vllm serve` there."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Passed to the chat template (`enable_thinking: false`, `reasoning_effort: low`, ...)."""
    embedded: bool = False
    """The weights come with evorun's own set-up (`make run`) instead of a hub."""
    api: bool = False
    """Served by its vendor only, through `engine=server`."""
    random: bool = False
    """Answers at random in the task's format; served by the simulated engine, whichever is asked for."""

    def __post_init__(self) -> None:
        at_least("model.context_length", self.context_length, 1)
        one_of("model.dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        one_of("model.system_role", self.system_role, ("native", "merge"))
        one_of("model.tool_role", self.tool_role, ("native", "user"))
        if not self.id:
            raise ConfigError("model.id: expected a hub id or a folder, got an empty string")

    @property
    def identity(self) -> str:
        """Name of this model in journals: its id and, when there is one, its adapter's digest.

        Reads the adapter's files. Raises EngineError when they are missing.
        """
        return self.id if self.adapter is None else f"{self.id}+adapter:{read_adapter(self.adapter).digest}"


class GpuUse(NamedTuple):
    """The GPUs that an engine fills."""

    devices: Sequence[int]
    share: float
    """Of each one's memory."""
    sleeps: bool
    """The memory is lent to a trainer during its updates."""


@dataclass
class EngineConfig:
    """Base of the schemas of `conf/engine/*.yaml`; each engine module has its own subclass.

    What a run must know of its engine is declared here, so that no other module asks which engine it is.
    """

    simulated: ClassVar[bool] = False
    """True where texts come from a simulator."""
    knows_truth: ClassVar[bool] = False
    """True where verdicts come from the right answers."""
    replays: ClassVar[bool] = False
    """True where replies come from a recorded run."""
    is_trainer: ClassVar[bool] = False
    """True where the trainer itself samples from the weights that it trains; other engines are given each adapter."""
    served_by_vllm: ClassVar[bool] = False
    """True where vLLM serves the adapters that a run trains."""

    name: str

    @property
    def recorded(self) -> Path | None:
        """Directory of the run whose records answer; None where none do."""
        return None

    @property
    def gpu_use(self) -> GpuUse | None:
        """The GPUs that the engine fills by itself; None where it takes memory as it needs it."""
        return None

    @property
    def lacks_digits(self) -> str | None:
        """What keeps the engine from holding a reply to a bare number; None where nothing does."""
        return None

    def renders_prompts(self, model: ModelConfig, *, trains: bool) -> bool:
        """Return whether prompts are rendered in this process, by the model's own chat template."""
        return False

    def for_adapters(self, rank: int) -> Self:
        """Return the engine with room for adapters up to a rank."""
        return self

    def for_seed(self, seed: int) -> Self:
        """Return the engine with what it leaves to the run's seed."""
        return self

    def identity_of(self, model: ModelConfig) -> Any:
        """Return what tells two judges apart: the model's name or, simulated, its skill."""
        return self.name_of(model)

    def name_of(self, model: ModelConfig) -> str:
        """Return the name by which journals know `model` on this engine. Raises EngineError as `identity` does."""
        return model.identity

    def require(self, model: ModelConfig) -> None:
        """Look for what `open` will need, as far as that is quick. Raises EngineError with one line where it lacks."""

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Make the engine ready to serve `model`. Raises EngineError with one line when it cannot."""
        raise NotImplementedError


class ServedModel(NamedTuple):
    """A model and the engine that serves it."""

    model: ModelConfig
    engine: EngineConfig
