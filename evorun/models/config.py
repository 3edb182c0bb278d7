"""Typed configuration of models and of the engines that serve them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from evorun.errors import ConfigError, at_least, one_of
from evorun.models.adapters import read_adapter
from evorun.models.base import LanguageModel

OTHER_ROLES = ("judge", "reward", "meta", "reflection", "gold")
"""Roles of models in a run, other than the policy and its reference. Two configuration groups give such a role its
model and engine (`judge=`, `judge_engine=`). `gold` grades for tasks whose grade is a judge's opinion; methods cannot
ask it."""


@dataclass
class ModelConfig:
    """A model: its identity and the settings that every engine needs (schema of `conf/model/*.yaml`)."""

    name: str
    """Short name, as on the command line (`gemma3_4b`)."""
    id: str
    """Hub id (`google/gemma-3-4b-it`), the model's name on a server, or the path of a local folder."""
    description: str = ""
    context_length: int = 8192
    """Maximum length of prompt plus completion, in tokens."""
    dtype: str = "auto"
    """auto | float32 | bfloat16 | float16."""
    quantization: str | None = None
    """Quantisation of the weights (awq, compressed-tensors, mxfp4, fp8), or null; engines read the details from the
    model folder."""
    adapter: str | None = None
    """Folder of a LoRA adapter in PEFT's format with which to serve the model, or null."""
    system_role: str = "native"
    """native: the chat template accepts a system message. merge: it does not, so the text precedes the first user
    message."""
    tool_role: str = "native"
    """native: the chat template accepts a tool's answer. user: it does not, so the answer becomes a user message."""
    by_token_ids: bool = False
    """On a server, send every prompt as token ids made here, and read completions by their token ids; training always
    does so. For a model with channels, whose turns are more than their text: arms with and without training then get
    the same prompts. Needs the model's tokenizer here, and `vllm serve` there."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the chat template (`enable_thinking: false`, `reasoning_effort: low`, ...)."""
    embedded: bool = False
    """The weights come with evorun's set-up (`make run`) instead of a hub."""
    api: bool = False
    """Only its vendor serves the model, through `engine=server`."""
    random: bool = False
    """The model answers at random in the task's format; always served by the simulated engine."""

    def __post_init__(self) -> None:
        at_least("model.context_length", self.context_length, 1)
        one_of("model.dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        one_of("model.system_role", self.system_role, ("native", "merge"))
        one_of("model.tool_role", self.tool_role, ("native", "user"))
        if not self.id:
            raise ConfigError("model.id: expected a hub id or a folder, got an empty string")

    @property
    def identity(self) -> str:
        """Name of this model in journals: its id, with its adapter's digest if it has one.

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
        """Return the name of `model` on this engine in journals. Raises EngineError if its adapter's files are gone."""
        return model.identity

    def require(self, model: ModelConfig) -> None:
        """Check quickly for the requirements of `open`. Raises EngineError with one line if one is missing."""

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Start the engine for `model`. Raises EngineError with one line when that fails."""
        raise NotImplementedError


class ServedModel(NamedTuple):
    """A model and the engine that serves it."""

    model: ModelConfig
    engine: EngineConfig
