"""The smallest difference that planned runs could show, by recorded runs where there are any."""

from collections.abc import Collection

from evorun.runner.recorded import Recorded
from evorun.runner.settings import RunConfig
from evorun.runs.formats import counted
from evorun.runs.scores import Score
from evorun.runs.statistics import Spread, estimate_spread, smallest_difference, worst_spread

UNPAIRED = "; once two methods have run on the task, paired differences usually give a smaller one"
SEEDS_AGREE = "; seeds are taken to agree on each problem, and where they do not, it can be larger"


def plan_difference(
    config: RunConfig, problems: int, seeds: int, recorded: Recorded, others: Collection[str]
) -> tuple[float | None, str]:
    """Return the smallest difference of an arm to another on the same problems and seeds, and what it assumes.

    others: methods that the arm will be compared with; recorded runs of them are preferred to those of other methods.
    """
    score = config.task.task_class.scores[0]
    model, simulated = config.engine.journal_name(config.model), config.engine.simulated
    paired = recorded.find_differences(config.method.name, others, config.task.name, model, score, simulated=simulated)
    if paired is not None:
        spread = estimate_spread(paired.differences)
        known_seeds, known_problems = paired.differences.shape
        note = (
            f"from {' and '.join(sorted((paired.ours, paired.theirs)))} with {paired.model}, as recorded: paired "
            f"differences on {known_problems} problems x {counted(known_seeds, 'seed')}"
        )
        agree = seeds > 1 and known_seeds == 1
        return smallest_difference(spread, problems, seeds), note + (SEEDS_AGREE if agree else "")
    by_score, note = _find_spread(score, config, recorded)
    if by_score is None:
        return None, note
    note += UNPAIRED
    return smallest_difference(by_score, problems, seeds), note + (SEEDS_AGREE if seeds > 1 else "")


def _find_spread(score: Score, config: RunConfig, recorded: Recorded) -> tuple[Spread | None, str]:
    task = config.task.name
    earlier = recorded.score(task, simulated=config.engine.simulated)
    if earlier is not None:
        metric, about = earlier
        if score.rate and metric.value is not None:
            return worst_spread(mean=metric.value), f"from {about}: {100 * metric.value:.1f} % of {metric.n} problems"
        if metric.ci95 is not None:
            variance = ((metric.ci95[1] - metric.ci95[0]) / (2 * 1.96)) ** 2 * metric.n
            return Spread(problem=2 * variance), f"from the interval of {about} over {metric.n} problems"
    if score.low is None or score.high is None:
        return None, f"{score.name} has no bounds, and no run on {task} is recorded below outputs"
    widest = "p (1 - p) at p = 1/2" if score.rate else f"scores at {score.low:g} and {score.high:g} alone"
    note = f"largest spread over problems, {widest}: no run on {task} is recorded below outputs"
    return worst_spread(score.low, score.high), note + ("" if score.rate else "; expect far less of scores by degrees")
