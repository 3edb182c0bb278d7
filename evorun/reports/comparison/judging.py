"""Says where the judges of compared arms sample differently, since their verdicts then differ for that reason too."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from evorun.reports.comparison.arms import Arm
from evorun.reports.figures import has_judge

SAMPLING = ("judge_temperature", "judge_max_tokens")
"""Settings of a method by which its judge samples."""


def describe_judge_sampling(arms: Sequence[Arm]) -> Iterator[str]:
    """Yield a sentence for each task and setting of the judge in which arms with duels differ."""
    judged = [arm for arm in arms if not arm.is_baseline and has_judge(arm.runs[0].manifest)]
    for task in dict.fromkeys(arm.runs[0].manifest.task for arm in judged):
        for key in SAMPLING:
            names: dict[object, list[str]] = defaultdict(list)
            for arm in (arm for arm in judged if arm.runs[0].manifest.task == task):
                names[arm.runs[0].manifest.config["method"].get(key)].append(arm.name)
            if len(names) > 1:
                values = ", ".join(f"{value} ({'; '.join(held)})" for value, held in names.items())
                yield (
                    f"The judges of these arms sample differently: method.{key} is {values}. Their differences may be "
                    "the judge's, not the method's."
                )
