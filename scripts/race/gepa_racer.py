"""GEPA in the race: one prompt evolved on PROBLEMS additions, up to CALLS metric calls, with its run directory.

python gepa_racer.py URL PROBLEMS CALLS FOLDER
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

import gepa
from gepa.core.adapter import EvaluationBatch
from openai import OpenAI

AT_ONCE = 64


class Adapter:
    """Asks the endpoint once for each example. A reply's score is a hash of it: some proposals seem better."""

    propose_new_texts = None

    def __init__(self, client: OpenAI) -> None:
        self._client = client
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def ask(self, system: str, text: str) -> str:
        """Return the endpoint's reply."""
        messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        reply = self._client.chat.completions.create(model="race", messages=messages)
        return reply.choices[0].message.content or ""

    def evaluate(self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """Ask for each example, as many at once as the others do."""
        replies = list(self._pool.map(lambda text: self.ask(candidate["prompt"], text), batch))
        scores = [blake2b(reply.encode(), digest_size=1).digest()[0] / 255 for reply in replies]
        return EvaluationBatch(replies, scores, trajectories=replies if capture_traces else None)

    def make_reflective_dataset(self, candidate: dict[str, str], batch: Any, components: list[str]) -> Any:
        """Show each reply with its score."""
        shown = [{"reply": text, "score": score} for text, score in zip(batch.outputs, batch.scores, strict=True)]
        return dict.fromkeys(components, shown)


def main() -> None:
    """Optimise; GEPA itself continues a folder that a killed process left."""
    url, problems, calls, folder = sys.argv[1:5]
    adapter = Adapter(OpenAI(base_url=f"{url}/v1", api_key="none"))
    examples = [f"What is {number} + {number}?" for number in range(int(problems))]
    gepa.optimize(
        {"prompt": "Add."},
        examples,
        examples,
        adapter=adapter,
        reflection_lm=lambda prompt: adapter.ask("Improve the prompt.", str(prompt)),
        max_metric_calls=int(calls),
        run_dir=folder,
        seed=0,
    )


if __name__ == "__main__":
    main()
