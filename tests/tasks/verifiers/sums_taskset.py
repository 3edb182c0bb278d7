"""A taskset with a system prompt, two weighted rewards and a metric."""

import re

import verifiers.v1 as vf

_SUMS = [(17, 25), (8, 9), (40, 2), (31, 31), (8, 9)]


class SumData(vf.TaskData):
    answer: str
    kind: str = "sum"


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=0.75)
    async def right(self, trace: vf.Trace) -> float:
        numbers = re.findall(r"-?\d+", trace.last_reply)
        return float(bool(numbers) and numbers[-1] == self.data.answer)

    @vf.reward(weight=0.25)
    async def form(self, task: SumData, trace: vf.Trace) -> float:
        if "crash" in trace.last_reply:
            raise RuntimeError("a reward's fault")
        return float("ANSWER:" in trace.last_reply)

    @vf.metric
    async def words(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply.split()))


class Sums(vf.Taskset[SumTask]):
    def load(self) -> list[SumTask]:
        return [
            SumTask(SumData(prompt=f"What is {a} + {b}?", system_prompt="You add numbers.", answer=str(a + b)))
            for a, b in _SUMS
        ]


__all__ = ["Sums"]
