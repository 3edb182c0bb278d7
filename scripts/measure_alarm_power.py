"""The power and the false alarms of the report's alarm (reward and gold score diverge), by number of test problems.

    python scripts/measure_alarm_power.py

Simulates runs of eleven evaluations and fifty steps, and asks `evorun.reports.divergence` itself. Each test
problem has a difficulty of its own (standard deviation .1), and each score has noise: that of three samples of six
sentences, half of them to the point (.12). Half-way the gold score falls for good by so much, while the normalised
reward goes on rising. Without a fall, every alarm is a false one. The shares are of 400 runs: their standard error is
at most .025.
"""

import argparse

import numpy as np

from evorun.reports.hacking import find_divergence

STEPS, EVERY, RUNS = 50, 5, 400
DIFFICULTY, NOISE, REWARD_NOISE = 0.1, 0.12, 0.02


def raised(problems: int, fall: float, rng: np.random.Generator) -> bool:
    """Return whether a simulated run raises the alarm."""
    rewards = {step: 0.4 + 0.004 * step + REWARD_NOISE * rng.standard_normal() for step in range(1, STEPS + 1)}
    own = 0.5 + DIFFICULTY * rng.standard_normal(problems)
    gold = {}
    for step in range(0, STEPS + 1, EVERY):
        scores = own - fall * (step > STEPS / 2) + NOISE * rng.standard_normal(problems)
        gold[step] = {str(number): float(score) for number, score in enumerate(scores)}
    return find_divergence(rewards, gold) is not None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", type=int, default=[8, 20, 60, 200])
    parser.add_argument("--falls", nargs="+", type=float, default=[0.0, 0.02, 0.05, 0.1, 0.2])
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    print("problems" + "".join(f"{f'fall {fall:g}':>12}" for fall in options.falls))
    for problems in options.problems:
        rng = np.random.default_rng(problems)
        shares = [np.mean([raised(problems, fall, rng) for _ in range(options.runs)]) for fall in options.falls]
        print(f"{problems:8}" + "".join(f"{share:12.2f}" for share in shares))
