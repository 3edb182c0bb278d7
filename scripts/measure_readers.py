"""Print how many realistic replies (tests/replies) are read as their answers, and how many near misses, by task.

    python scripts/measure_readers.py [--refused] [--held-out [FILE]]

Near misses are the replies of refused.txt, and all replies with a wrong or incomplete answer in the place of the right
one; none may be taken for right. --refused: also name the replies that are not read, with what was read or why nothing.
--held-out: instead grade replies on which a careful human has given a verdict (default: tests/replies/held_out.jsonl,
whose form tests/held_out.py describes), and print how often the run is of another mind; --refused names the replies.
"""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refused", action="store_true")
    parser.add_argument("--held-out", nargs="?", const=TESTS / "replies" / "held_out.jsonl", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    if arguments.held_out:
        print_held_out(arguments.held_out, arguments.refused)
    else:
        print_tables(arguments.refused)


def print_tables(named: bool) -> None:
    """Print what is read of the tables' replies. named: also the replies that are not read."""
    tables: Any = importlib.import_module("reply_tables")
    columns = ("replies", "accepted", "refused", "misread", "near misses", "taken for right")
    print(f"{'task':16}" + "".join(f"{name:>{len(name) + 2}}" for name in columns))
    for table in (*tables.CASES, "math500"):
        refused = misread = 0
        lines, replies = [], tables.templates(table)
        for reply in replies:
            case = tables.CASES[table]() if table in tables.CASES else tables.expression_case(reply.name)
            text = reply.fill(case.shapes(case.right))
            read = case.task.parse(case.problem, text)
            if case.accepts(text):
                continue
            refused, misread = refused + (read.answer is None), misread + (read.answer is not None)
            lines.append(f"    {reply.name}: {read.error or f'read as {read.answer!r:.60}'}")
        missed = [case.accepts(text) for text in near_misses(tables, table, case)]
        figures = (len(replies), len(replies) - refused - misread, refused, misread, len(missed), sum(missed))
        print(f"{table:16}" + "".join(f"{n:{len(name) + 2}}" for n, name in zip(figures, columns, strict=True)))
        if named:
            print(*lines, sep="\n")


def near_misses(tables: Any, table: str, case: Any) -> list[str]:
    """Return the near misses of a table; `math500` has none of its own."""
    if table not in tables.CASES:
        return []
    shapes = case.shapes(case.right)
    listed = [
        template.fill(shapes) for template in tables.templates("refused") if template.name.startswith(f"{table}: ")
    ]
    answers = [*tables.wrong_answers(table, case.right), *tables.incomplete_answers(table, case.right)]
    return [
        *listed,
        *(template.fill(case.shapes(answer)) for answer in answers for template in tables.templates(table)),
    ]


def print_held_out(file: Path, named: bool) -> None:
    """Print how often the readers and a human disagree. named: also where."""
    held_out: Any = importlib.import_module("held_out")
    outcomes = held_out.outcomes(held_out.read_judged(file))
    columns = ("right", "right refused", "wrong", "wrong accepted")
    print(f"{'task':16}" + "".join(f"{name:>{len(name) + 2}}" for name in columns))
    for task in (*dict.fromkeys(outcome.reply.task for outcome in outcomes), ""):
        mine = [outcome for outcome in outcomes if task in ("", outcome.reply.task)]
        figures = [part for right in (True, False) for part in _counts(mine, right)]
        print(f"{task or 'all':16}" + "".join(f"{n:{len(name) + 2}}" for n, name in zip(figures, columns, strict=True)))
        for outcome in mine if named and task else ():
            if not outcome.agrees:
                print(f"    {outcome.reply.verdict}: {outcome.reply.why}: {outcome.read!r:.60}")


def _counts(outcomes: list[Any], right: bool) -> tuple[int, int]:
    same = [outcome for outcome in outcomes if outcome.reply.right == right]
    return len(same), sum(not outcome.agrees for outcome in same)


if __name__ == "__main__":
    main()
