"""Write the sample set of the task `mathbench`: generated word problems in the layout of MathBench's files.

usage: make_mathbench_sample.py [FOLDER]     (FOLDER: the sample folder inside the package)

Each of the three stages has twelve kinds of question (mathbench_kinds/), four of each. The numbers are drawn from a
fixed seed, the wrong options come from typical mistakes, and each stage has every answer letter equally often. The
output is always the same; tests/tasks/test_mathbench_sample.py solves every question again by other means.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
from mathbench_kinds import college, high, middle
from mathbench_kinds.draft import Draft, Kind

SEED = 1
PER_KIND = 4
LETTERS = "ABCD"
STAGES = {"middle": middle.KINDS, "high": high.KINDS, "college": college.KINDS}
FOLDER = Path(__file__).resolve().parents[1] / "evorun/tasks/mathbench/sample"


def distinct_drafts(kind: Kind, rng: Random) -> Iterator[Draft]:
    """Yield drafts of a kind, each question once, with three mistakes that differ from the answer and each other."""
    asked = set()
    while True:
        drafted = kind(rng)
        if drafted is None or drafted.question in asked:
            continue
        mistakes = [m for m in dict.fromkeys(drafted.mistakes) if m != drafted.answer][: len(LETTERS) - 1]
        if len(mistakes) == len(LETTERS) - 1:
            asked.add(drafted.question)
            yield drafted._replace(mistakes=mistakes)


def records(stage: str, kinds: list[Kind]) -> list[dict[str, object]]:
    """Return the stage's records in MathBench's fields, the kinds in turn."""
    rng = Random(f"{SEED}/{stage}")
    deck = list(LETTERS) * (len(kinds) * PER_KIND // len(LETTERS))
    rng.shuffle(deck)
    sources = [(kind, distinct_drafts(kind, Random(f"{SEED}/{stage}/{kind.__name__}"))) for kind in kinds]
    made: list[dict[str, object]] = []
    for turn in range(PER_KIND):
        for kind, drafts in sources:
            drafted, letter = next(drafts), deck[len(made)]
            options = rng.sample(drafted.mistakes, len(drafted.mistakes))
            options.insert(LETTERS.index(letter), drafted.answer)
            made.append(
                {
                    "question": drafted.question,
                    "options": options,
                    "answer": letter,
                    "topic": kind.__name__,
                    "id": f"sample/{stage}/{kind.__name__}/{turn + 1}",
                }
            )
    return made


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for stage, kinds in STAGES.items():
        path = folder / stage / "single_choice_en.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records(stage, kinds)))


if __name__ == "__main__":
    main()
