"""An engine whose texts a test decides, which notes its requests and may break down."""

from abc import abstractmethod
from dataclasses import dataclass, field

from evorun.errors import EngineError
from evorun.models.base import Completion, LanguageModel, Reply, Request
from evorun.models.config import EngineConfig, ModelConfig


@dataclass
class SayingConfig(EngineConfig):
    """Says what a subclass decides, in 0.1 to 0.3 seconds by the request's seed; fails after `breaks_after` answers."""

    name: str = "saying"
    breaks_after: int | None = None
    asked: list[Request] = field(default_factory=list)

    @abstractmethod
    def say(self, request: Request) -> str:
        """Return the text of the only completion."""

    async def open(self, model: ModelConfig) -> LanguageModel:
        return _Saying(self, model.id)


class _Saying:
    def __init__(self, config: SayingConfig, name: str) -> None:
        self.config = config
        self.name = name

    async def complete(self, request: Request) -> Reply:
        if self.config.breaks_after is not None and len(self.config.asked) >= self.config.breaks_after:
            raise EngineError("the engine has broken down")
        self.config.asked.append(request)
        completion = Completion(text=self.config.say(request), finish_reason="stop", tokens=5)
        return Reply(completions=(completion,), prompt_tokens=10, seconds=0.1 * (1 + request.seed % 3))

    async def close(self) -> None:
        return
