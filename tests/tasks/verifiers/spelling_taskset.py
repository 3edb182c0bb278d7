"""A taskset without end whose settings decide its words and its partial credit, without any named answer."""

import itertools
from collections.abc import Iterator

import verifiers.v1 as vf


class SpellingTaskConfig(vf.TaskConfig):
    partial: float = 0.0


class SpellingConfig(vf.TasksetConfig):
    letters: str = "abc"
    task: SpellingTaskConfig = SpellingTaskConfig()


class WordData(vf.TaskData):
    word: str


class SpellingTask(vf.Task[WordData, vf.State, SpellingTaskConfig]):
    @vf.reward
    async def backward(self, trace: vf.Trace, runtime: vf.Runtime | None = None) -> float:
        wanted, said = self.data.word[::-1], trace.last_reply
        return 1.0 if said == wanted else self.config.partial * float(wanted in said)


class Spelling(vf.Taskset[SpellingTask, SpellingConfig]):
    INFINITE = True

    def load(self) -> Iterator[SpellingTask]:
        for number in itertools.count(1):
            word = (self.config.letters * number)[: number + 2]
            yield SpellingTask(WordData(prompt=f"Spell {word} backward.", word=word), self.config.task)


__all__ = ["Spelling"]
