"""Check every family of Reasoning Gym as a task: reproducible, split without leaks, right and wrong answers graded so.

    python scripts/check_reasoning_gym.py [--families countdown zebra_puzzles] [--problems 3]

Needs `pip install 'evorun[reasoning-gym]'`; all families take some twenty minutes. Prints a row for each. Exits with 1
where a check fails. Families without a known answer are left to real models.
"""

import argparse
import sys
import time

from evorun.cli.compose import default_config
from evorun.tasks.reasoning_gym import generator
from evorun.tasks.reasoning_gym.families import REFUSED
from evorun.testing import check_task

PICKED = ("arc_1d", "number_format", "pool_matrix", "rotate_matrix", "string_insertion", "string_manipulation")
"""Families where an answer can be a part of its question: one of its numbers, or what stays as it is."""


def list_families() -> list[str]:
    from reasoning_gym.factory import DATASETS

    return sorted(set(DATASETS) - set(REFUSED))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+")
    parser.add_argument("--problems", type=int, default=3)
    asked = parser.parse_args()
    failed = 0
    for family in asked.families or list_families():
        began = time.monotonic()
        try:
            sizes = {"test_problems": 6, "train_problems": 6, "validation_problems": 4}
            config = default_config("task", "reasoning_gym", dataset=family, **sizes)
            if not config.load().answers:
                print(f"{family:28} no known answer: real models only", flush=True)
                continue
            check_task(config, problems=asked.problems, picked_answers=family in PICKED)
            found = "passes"
        except Exception as error:
            failed += 1
            found = f"FAILS: {type(error).__name__}: {str(error)[:200]}"
        print(f"{family:28} {found} ({time.monotonic() - began:.1f} s)", flush=True)
    generator.shared().close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
