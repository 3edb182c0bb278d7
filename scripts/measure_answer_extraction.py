r"""Read the answers of graded model outputs, and print where the value read here and the source's verdict differ.

    python scripts/measure_answer_extraction.py FILE

FILE: JSON lines with `expected` and `outputs`, each with `text_tail`, `correct` and `reason`: the source's verdict
under its own strict rule, that a line reads exactly `ANSWER: <integer>`. So a text has no box where the source asked
for none: the value of its last line of that kind, decorated or not, is then put through the reading of boxed answers;
where a text has both, the box is compared with the line. A verdict here is one on the value: whether it is `expected`.
"""

import argparse
import collections
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from evorun.tasks.base import Problem
from evorun.tasks.math_contest.math_contest import MathContest

LINE = re.compile(r"^[ \t>#*_]*ANSWER:[ \t]*(.*?)[ \t*_]*$", re.MULTILINE | re.IGNORECASE)
TASK = MathContest(integers=True, largest=999)
PROBLEM = Problem(id="", stratum="", data={"problem": ""})


class Reading(NamedTuple):
    """The answer that is read from a text."""

    answer: str | None
    error: str | None
    """Why there is none."""
    origin: str
    """box | line | nothing"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    with parser.parse_args().file.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    outputs = [(record, number, output) for record in records for number, output in enumerate(record["outputs"])]
    print_agreement(outputs)
    print_boxes_beside_lines(outputs)


def read(text: str) -> Reading:
    """Read the line that the source asked for, else the last box."""
    line = stated_line(text)
    if line is not None:
        response = TASK.parse(PROBLEM, f"\\boxed{{{line}}}")
        return Reading(response.answer, response.error, "line")
    response = TASK.parse(PROBLEM, text)
    return Reading(response.answer, response.error, "box" if response.answer else "nothing")


def stated_line(text: str) -> str | None:
    found = LINE.findall(text)
    return found[-1] if found else None


def print_agreement(outputs: list[tuple[dict[str, Any], int, dict[str, Any]]]) -> None:
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    disagreements = []
    for record, number, output in outputs:
        reading = read(output["text_tail"])
        verdict = "unread" if reading.answer is None else "right" if is_right(record, reading) else "wrong"
        counts[output["reason"], verdict] += 1
        if output["correct"] != is_right(record, reading):
            disagreements.append(f"{record['id']}[{number}]: {why(record, output, reading)}")
    print(f"{'the source says':22}{'right':>8}{'wrong':>8}{'unread':>8}")
    for reason in sorted({reason for reason, _ in counts}):
        print(f"{reason:22}" + "".join(f"{counts[reason, verdict]:8}" for verdict in ("right", "wrong", "unread")))
    errors = collections.Counter(str(read(output["text_tail"]).error).partition(":")[0] for _, _, output in outputs)
    print("unread: " + ", ".join(f"{n} {kind}" for kind, n in errors.most_common() if kind != "None"))
    print(f"{len(outputs) - len(disagreements)} of {len(outputs)} verdicts agree; {len(disagreements)} disagreements")
    print(*disagreements, sep="\n")


def is_right(record: dict[str, Any], reading: Reading) -> bool:
    return reading.answer == str(int(record["expected"]))


def why(record: dict[str, Any], output: dict[str, Any], reading: Reading) -> str:
    """Return the explanation of a disagreement by the two rules, or that it is unexplained."""
    last = output["text_tail"].rstrip().rpartition("\n")[2]
    if output["reason"] == "missing_answer_line" and is_right(record, reading):
        return f"the value is the expected {record['expected']}, but its line is decorated: {last!r}"
    said = f"source {output['reason']} ({output['answer_line']}), here {reading.answer} from a {reading.origin}"
    return f"unexplained: expected {record['expected']}; {said}; {last!r}"


def print_boxes_beside_lines(outputs: list[tuple[dict[str, Any], int, dict[str, Any]]]) -> None:
    """Print how often a text's last box and its line hold the same value, and the pairs that do not."""
    pairs = []
    for record, number, output in outputs:
        line, boxed = stated_line(output["text_tail"]), TASK.parse(PROBLEM, output["text_tail"])
        if line is not None and "boxed" in output["text_tail"]:
            pairs.append((f"{record['id']}[{number}]", read(output["text_tail"]).answer, boxed.answer, boxed.error))
    different = [pair for pair in pairs if pair[1] != pair[2]]
    print(f"\n{len(pairs)} texts have a box and a line; in {len(pairs) - len(different)} both hold the same integer")
    for name, line, box, error in different:
        print(f"{name}: line {line}, box {box or error}")


if __name__ == "__main__":
    main()
