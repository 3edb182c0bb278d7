"""Typed configuration of models and of the engines that serve them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from evorun.errors import ConfigError, EvorunError
from evorun.fields import Checked, OneOf, PositiveInt
from evorun.models.adapters import digest_adapter
from evorun.models.base import LanguageModel

OTHER_ROLES = ("judge", "reward", "meta", "reflection", "generator", "gold")
"""Roles of models in a run, other than the policy and its reference. Two configuration groups give such a role its
model and engine (`judge=`, `judge_engine=`). `gold` grades for tasks whose grade is a judge's opinion; methods cannot
ask it."""


@dataclass
class ModelConfig(Checked):
    """A model: its identity and the settings that every engine needs (schema of `conf/model/*.yaml`)."""

    section = "model"

    name: str
    """Short name, as on the command line (`gemma3_4b`)."""
    id: str
    """Hub id (`google/gemma-3-4b-it`), the model's name on a server, or the path of a local folder."""
    description: str = ""
    context_length: PositiveInt = 8192
    """Maximum length of prompt plus completion, in tokens."""
    dtype: Annotated[str, OneOf(("auto", "float32", "bfloat16", "float16"))] = "auto"
    """auto | float32 | bfloat16 | float16."""
    quantization: str | None = None
    """Quantisation of the weights (awq, compressed-tensors, mxfp4, fp8), or null; engines read the details from the
    model folder."""
    adapter: str | None = None
    """Folder of a LoRA adapter in PEFT's format with which to serve the model, or null. engine=tinker: one that
    training=tinker left, since the server takes no others."""
    system_role: Annotated[str, OneOf(("native", "merge"))] = "native"
    """native: the chat template accepts a system message. merge: it does not, so the text precedes the first user
    message."""
    tool_role: Annotated[str, OneOf(("native", "user"))] = "native"
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
        super().__post_init__()
        if not self.id:
            raise ConfigError("model.id: expected a hub id or a folder, got an empty string")

    @property
    def identity(self) -> str:
        """Name of this model in journals: its id, with its adapter's digest if it has one.

        Reads the adapter's files. Raises EngineError when they are missing.
        """
        return self.id if self.adapter is None else f"{self.id}+adapter:{digest_adapter(self.adapter)}"


class GpuUse(NamedTuple):
    """The GPUs whose memory an engine reserves."""

    devices: Sequence[int]
    share: float
    """Reserved share of each GPU's memory."""
    sleeps: bool
    """True: a trainer may use the memory during its updates."""


@dataclass
class EngineConfig(Checked):
    """Base of the schemas of `conf/engine/*.yaml`; each engine module has its own subclass.

    It declares what a run must know of its engine, so that no other module asks which engine it is.
    """

    section = "engine"

    simulated: ClassVar[bool] = False
    """True if a simulator writes the texts."""
    knows_truth: ClassVar[bool] = False
    """True if verdicts follow from the right answers."""
    by_code: ClassVar[bool] = False
    """True if verdicts come from code, not from a model."""
    replays: ClassVar[bool] = False
    """True if replies come from a recorded run."""
    is_trainer: ClassVar[bool] = False
    """True if the trainer itself samples from the weights under training; other engines receive each adapter."""
    served_by_vllm: ClassVar[bool] = False
    """True if vLLM serves the adapters that a run trains."""
    takes_weights: ClassVar[bool] = False
    """True if the engine can replace all weights of its model while it runs (`TakesWeights`)."""
    on_tinker: ClassVar[bool] = False
    """True if Tinker's API samples from the weights that it trains."""
    holds_weights: ClassVar[bool] = False
    """True if the process that opens the engine holds the weights: runs side by side may share one such process."""

    name: str

    @property
    def billed(self) -> bool:
        """True if a vendor may bill the tokens."""
        return False

    @property
    def choice(self) -> str:
        """Name of the engine as a user chooses it: `openai` for the engine `server` at that vendor's address."""
        return self.name

    @property
    def recorded(self) -> Path | None:
        """Directory of the recorded run that answers, or None."""
        return None

    @property
    def trainer_url(self) -> str | None:
        """Address of the server that also trains; None without one, or for its usual address."""
        return None

    @property
    def loads_weights(self) -> bool:
        """True if the engine loads weights onto GPUs of this machine, where it has any."""
        return False

    @property
    def planned_gpus(self) -> Sequence[int]:
        """The GPUs that the user or the plan has named for the engine."""
        return ()

    @property
    def gpu_use(self) -> GpuUse | None:
        """The GPUs whose memory the engine reserves; None if it allocates memory as needed."""
        return None

    @property
    def lacks_digits(self) -> str | None:
        """Reason why the engine cannot restrict a reply to a bare number; None if it can."""
        return None

    def renders_prompts(self, model: ModelConfig, *, trains: bool) -> bool:
        """Return whether this process renders prompts, with the model's chat template."""
        return False

    def for_adapters(self, rank: int, held: int) -> Self:
        """Return the engine with room for adapters up to a rank. held: number of them that answer at the same time.

        Raises ConfigError where the user has set too small a rank.
        """
        return self

    def for_transfer(self, transfer: str) -> Self:
        """Return the engine as it must open to receive weights from a trainer's memory (`TRANSFERS`).

        Raises ConfigError where the user's own settings prevent that.
        """
        return self

    def for_confidence(self, *, ends_early: bool) -> Self:
        """Return the engine as it must open to give confidences (`Confidence`).

        ends_early: it must also end completions below a threshold. Raises ConfigError where it cannot.
        """
        return self

    def beside_trainer(self, base_url: str | None) -> Self:
        """Return the engine on the trainer's server, where it samples there and names no address. None: no address."""
        return self

    def for_seed(self, seed: int) -> Self:
        """Return the engine with the settings that depend on the run's seed filled in."""
        return self

    def judge_identity(self, model: ModelConfig) -> Any:
        """Return the identity of a judge: the model's name or, for a simulated judge, its skill."""
        return self.journal_name(model)

    def journal_name(self, model: ModelConfig) -> str:
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


def name_engine_key(error: EvorunError, key: str) -> None:
    """Put an engine's configuration key into its error: `judge_engine.api_key_env` for `engine.api_key_env`."""
    error.args = (re.sub(r"\bengine(?=[.=])", key, str(error)),)
