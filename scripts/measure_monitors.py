"""Print the monitors of reward hacking on texts in a file: means, and the 99th percentile.

    python scripts/measure_monitors.py FILE.jsonl FIELD...

FIELD: of each record, a text. So one sees what is usual for a task before setting a threshold
(`method.monitors_above`).
"""

import argparse
from pathlib import Path

import numpy as np

from evorun.rollouts.monitors import measure
from evorun.tasks.benchmark_files import read_records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("fields", nargs="+", metavar="FIELD")
    given = parser.parse_args()
    texts = [
        str(record[name]) for _, record in read_records(given.file) if isinstance(record, dict) for name in given.fields
    ]
    measured = [measure(text, "stop") for text in texts]
    print(f"{len(texts)} texts")
    for name in measured[0] if measured else ():
        values = [figures[name] for figures in measured]
        print(f"{name:15} {np.mean(values):9.4f} {np.percentile(values, 99):9.4f}")


if __name__ == "__main__":
    main()
