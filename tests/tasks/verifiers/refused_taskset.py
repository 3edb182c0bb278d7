"""A taskset that evorun refuses, for the reason that its configuration names."""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf


class RefusedConfig(vf.TasksetConfig):
    why: str = ""


class Data(vf.TaskData):
    answer: str = "42"
    held: Any = None


class Plain(vf.Task[Data]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)


class Runtime(Plain):
    @vf.reward
    async def checked(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        return 1.0


class Container(Plain):
    NEEDS_CONTAINER = True


class Setup(Plain):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        return None


class Tools(Plain):
    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        return [vf.Toolset]


class NoReward(vf.Task[Data]):
    pass


class Judged(Plain):
    @vf.reward
    async def judged(self, trace: vf.Trace) -> float:
        await vf.ReferenceJudge().complete("Is it right?", trace=trace)
        return 1.0


class Attribute(Plain):
    def __init__(self, data: Data, config: Any = None) -> None:
        super().__init__(data, config)
        self.secret = 1


KINDS: dict[str, type[vf.Task]] = {
    kind.__name__.lower(): kind for kind in (Runtime, Container, Setup, Tools, NoReward, Judged, Attribute)
}
DATA: dict[str, dict[str, Any]] = {
    "image": {"image": "python:3"},
    "no_prompt": {"prompt": None},
    "picture": {
        "prompt": [
            vf.UserMessage(content=[vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url="data:image/png;base64,"))])
        ]
    },
    "held": {"held": {1, 2}},
}


class Refused(vf.Taskset[vf.Task, RefusedConfig]):
    def load(self) -> Iterator[vf.Task]:
        why = self.config.why
        if why == "broken":
            raise OSError("no file\nof that name")
        if why != "no_tasks":
            kind = KINDS.get(why, Plain)
            yield kind(Data(**{"prompt": "What is 6 x 7?", **DATA.get(why, {})}), self.config.task)

    @classmethod
    def toolsets(cls, config: RefusedConfig) -> list[Any]:
        return [vf.Toolset] if config.why == "shared_tools" else []


__all__ = ["Refused"]
