"""Time of E-SPL's own work on a population of system prompts: every training step pays it beside the models' time."""

import trueskill as package

from evorun.ratings import trueskill
from evorun_bench import Row, best_ms

TINY = {"repeats": 1}


def measure(repeats: int = 1_000) -> list[Row]:
    """Measure the ratings of a batch of three system prompts, so many times."""
    mean, sd, parameters = [25.0, 27.0, 24.0], [8.0, 4.0, 6.0], {"beta": 25 / 6, "tau": 25 / 300}
    environment = package.TrueSkill(draw_probability=0.1, **parameters)
    teams = [(environment.create_rating(*one),) for one in zip(mean, sd, strict=True)]

    own = best_ms(repeats, lambda: trueskill.rate(mean, sd, [0, 1, 2], draw_probability=0.1, **parameters))
    theirs = best_ms(repeats, lambda: environment.rate(teams, ranks=[0, 1, 2]))
    return [
        Row("TrueSkill update of 3 system prompts", own, "ms", "<= 0.3", own <= 0.3),
        Row("... by the trueskill package", theirs, "ms", "", None),
    ]
