"""Print how many of the realistic replies in tests/replies are read as their answers, by task.

    python scripts/measure_readers.py [--refused]

--refused: also name those that are not, with what was read or why nothing was.
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
    named = parser.parse_args().refused
    sys.path.insert(0, str(TESTS))
    tables: Any = importlib.import_module("reply_tables")
    print(f"{'task':16}{'replies':>8}{'accepted':>9}{'refused':>8}{'misread':>8}")
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
        print(f"{table:16}{len(replies):8}{len(replies) - refused - misread:9}{refused:8}{misread:8}")
        if named:
            print(*lines, sep="\n")


if __name__ == "__main__":
    main()
