"""An agentic task with a tool: what does the shopping cost? Only the shop's price list knows, one article at a time."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evorun.fields import NonNegativeInt, PositiveInt
from evorun.models.base import Message, Request
from evorun.runs.candidates import Response
from evorun.runs.streams import stream
from evorun.tasks.base import Grade, LoadedTask, Problem, TaskConfig
from evorun.tasks.loading import load_rows
from evorun.tasks.simulator import REVIEWS, TextSimulator
from evorun.tasks.text_task import TextTask

ARTICLES = ("apple", "bread", "candle", "drum", "envelope", "fork", "glove", "hammer", "inkpot", "jug")


class PriceList(TextTask):
    """Answers `price: ARTICLE` with the article's price; a reply that asks for none is the response."""

    name = "price_list"
    answer_format = (
        "A line `price: ARTICLE`, and nothing after it, asks for the price of one article. Once you know all prices, "
        "reply with a last line `total: NUMBER`."
    )

    def __init__(self, prices: Mapping[str, int], *, max_turns: int, prompts: str | None = None) -> None:
        self._prices = prices
        self._max_turns = max_turns
        super().__init__(prompts=prompts)

    def max_turns(self, problem: Problem) -> int:
        return self._max_turns

    async def answer_tools(self, problem: Problem, said: Message) -> Message | None:
        if not (asked := re.search(r"price: *(\w{1,20})\s*\Z", said["content"])):
            return None
        price = self._prices.get(asked[1])
        return Message(role="tool", content=f"no article {asked[1]}" if price is None else f"{asked[1]}: {price}")

    def read(self, problem: Problem, text: str) -> str:
        if not (found := re.search(r"total: *(\d{1,6})\s*\Z", text)):
            raise ValueError("no_total: expected a last line `total: NUMBER`")
        return str(int(found[1]))

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning.strip()}\ntotal: {answer}".strip()

    def score(self, problem: Problem, response: Response, reference: object) -> Grade:
        return Grade(correct=response.answer == reference)


class Shopper(TextSimulator):
    """The simulated model: asks for each article of the basket once, then answers by its skill."""

    malformed = ("total: unknown",)

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        hints = request.hints
        if "problem" in hints and hints["role"] not in REVIEWS:
            known = sum(message["role"] == "tool" for message in request.messages)
            basket = list(self._rows[hints["problem"]][0].data["basket"])
            if known < len(basket):
                return f"I look it up.\nprice: {basket[known]}"
        return super().respond(request, rng)


@dataclass
class PriceListConfig(TaskConfig):
    """Baskets of a few articles, drawn at random, as their prices are."""

    task_class = PriceList
    name: str = "price_list"
    description: str = "the cost of a basket, by a tool that knows prices"
    articles: PositiveInt = 3
    problems: PositiveInt = 12
    held_out: NonNegativeInt = 12
    max_turns: PositiveInt = 6
    prompts: str | None = None

    def load(self) -> LoadedTask:
        rng = stream(self.draw_seed, self.name)
        prices = dict(zip(ARTICLES, rng.integers(1, 100, len(ARTICLES)).tolist(), strict=True))
        rows = []
        for number in range(self.problems + self.held_out):
            names = sorted(rng.choice(ARTICLES, self.articles, replace=False).tolist())
            basket = dict(zip(names, rng.integers(1, 6, self.articles).tolist(), strict=True))
            wanted = ", ".join(f"{count} x {name}" for name, count in basket.items())
            data = {"question": f"What does this cost together? {wanted}", "basket": basket}
            total = sum(count * prices[name] for name, count in basket.items())
            rows.append((Problem(id=f"basket_{number:02}", stratum="all", data=data), str(total)))
        task = PriceList(prices, max_turns=self.max_turns, prompts=self.prompts)
        test, held_out = rows[: self.problems], rows[self.problems :]
        return load_rows(task, test, validation=held_out, source="generated", simulator=Shopper)
