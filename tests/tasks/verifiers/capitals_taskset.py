"""A taskset with a conversation as its prompt, answers in a field of another name, and a reward of several keys."""

from collections.abc import Iterator

import verifiers.v1 as vf

_CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid"}


class CapitalData(vf.TaskData):
    capital: str
    continent: str = "Europe"


class CapitalState(vf.State):
    seen: int = 0


class CapitalTask(vf.Task[CapitalData, CapitalState]):
    @vf.reward(weight=0.5)
    async def parts(self, trace: vf.Trace) -> dict[str, float]:
        trace.state.seen += 1
        said = trace.last_reply.partition("<answer>")[2].partition("</answer>")[0].strip()
        # The turns before the reply are no replies of its.
        asked = trace.messages[0].content == "Be brief." and len(trace.assistant_messages) == trace.state.seen
        return {"right": float(said == self.data.capital), "asked": float(asked)}

    @vf.reward(weight=-0.5)
    async def too_long(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) > 5000)


class Capitals(vf.Taskset[CapitalTask]):
    def load(self) -> Iterator[CapitalTask]:
        for country, capital in _CAPITALS.items():
            prompt = [
                vf.UserMessage(content="Hello."),
                vf.AssistantMessage(content="Yes?"),
                vf.UserMessage(content=f"Name the capital of {country} between <answer> and </answer>."),
            ]
            data = CapitalData(id=country, prompt=prompt, system_prompt="Be brief.", capital=capital)
            yield CapitalTask(data, self.config.task)


__all__ = ["Capitals"]
