"""Constrained decoding against free decoding with a repaired parse: which gives more usable JSON answers?

    python scripts/measure_json_decoding.py DATA [--questions 60] [--max-tokens 160] [--max-length none 400] [--repeat]

DATA is a folder in MathBench's layout (<stage>/single_choice_en.jsonl). The embedded model answers each question with
{"reasoning", "solution"}; an answer is usable when it parses, has some reasoning, and its solution is one of A to D.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

from evorun.models import LanguageModel, Message, Reply, Request, Sampling
from evorun.models.config import ModelConfig
from evorun.models.transformers.engine import TransformersConfig
from evorun.tasks.json_text import read_object

MODEL = ModelConfig(name="smollm2_135m", id="HuggingFaceTB/SmolLM2-135M-Instruct", dtype="float32", embedded=True)
INSTRUCTIONS = (
    "You answer multiple-choice questions. Reply with one JSON object and nothing else: "
    '{"reasoning": "your short reasoning", "solution": "the letter of your answer, A, B, C or D"}'
)


def read_questions(folder: Path, count: int) -> list[str]:
    """Return `count` questions with lettered options, taken in turn from all stages."""
    stages = [path.read_text().splitlines() for path in sorted(folder.glob("*/single_choice_en.jsonl"))]
    if not stages:
        raise SystemExit(f"{folder}: expected <stage>/single_choice_en.jsonl files, found none")
    records = [json.loads(line) for group in zip(*stages, strict=False) for line in group][:count]
    return [
        "\n".join([r["question"], *(f"{letter}. {text}" for letter, text in zip("ABCD", r["options"], strict=True))])
        for r in records
    ]


def answer_schema(max_length: int | None) -> dict[str, Any]:
    reasoning: dict[str, Any] = {"type": "string", "minLength": 1}
    if max_length is not None:
        reasoning["maxLength"] = max_length
    return {
        "type": "object",
        "properties": {"reasoning": reasoning, "solution": {"type": "string", "enum": ["A", "B", "C", "D"]}},
        "required": ["reasoning", "solution"],
        "additionalProperties": False,
    }


def usable(text: str) -> bool:
    answer = read_object(text, "solution") or {}
    return bool(answer.get("reasoning")) and answer.get("solution") in list("ABCD")


async def ask_all(
    model: LanguageModel, questions: list[str], sampling: Sampling, schema: dict[str, Any] | None, *, repeat: bool
) -> list[Reply]:
    requests = [
        Request(
            messages=(
                Message(role="system", content=INSTRUCTIONS),
                Message(role="user", content=f"{question}\n\n{INSTRUCTIONS}" if repeat else question),
            ),
            sampling=sampling,
            seed=seed,
            json_schema=schema,
        )
        for seed, question in enumerate(questions)
    ]
    return await asyncio.gather(*(model.complete(request) for request in requests))


async def measure(args: argparse.Namespace) -> None:
    questions = read_questions(args.data, args.questions)
    sampling = Sampling(temperature=args.temperature, max_tokens=args.max_tokens)
    ways: list[tuple[str, dict[str, Any] | None]] = [("free, repaired", None)]
    ways += [(f"constrained, maxLength {length}", answer_schema(length)) for length in args.max_length]
    model = await TransformersConfig(max_batch_size=len(questions)).open(MODEL)
    try:
        for name, schema in ways:
            start = time.perf_counter()
            replies = await ask_all(model, questions, sampling, schema, repeat=args.repeat)
            seconds = time.perf_counter() - start
            completions = [reply.completions[0] for reply in replies]
            tokens = sum(c.tokens for c in completions)
            print(
                f"{name:28} usable {sum(usable(c.text) for c in completions) / len(completions):6.1%}"
                f"  truncated {sum(c.finish_reason == 'length' for c in completions) / len(completions):6.1%}"
                f"  tokens per answer {tokens / len(completions):5.0f}  {tokens / seconds:5.0f} tokens/s",
                flush=True,
            )
    finally:
        await model.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument(
        "--repeat", action="store_true", help="state the format after the question too: a small model forgets the first"
    )
    parser.add_argument(
        "--max-length",
        nargs="+",
        default=[None, 500, 400, 300],
        type=lambda text: None if text == "none" else int(text),
        help="maxLength of `reasoning`, or none; several are measured one after the other",
    )
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
