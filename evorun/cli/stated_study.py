"""`evorun study FILE`: a sweep that a study file states before it starts."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from evorun.cli.composed_jobs import compose_jobs, compose_runs
from evorun.cli.options import split_max_price
from evorun.cli.overrides import MAY_CHANGE, read_key
from evorun.cli.quoting import write_value
from evorun.cli.usage import USAGES
from evorun.errors import ConfigError
from evorun.runs.stated_studies import StatedStudy, record_study
from evorun.runs.terminal import Terminal


def start_study(arguments: Sequence[str], console: Terminal) -> int:
    """Start the sweep that a study file states; return the exit code. Raises ConfigError for a wrong command line."""
    from evorun.cli.launch import run_hydra
    from evorun.cli.planning import require_max_price, warn_of_study

    words, limit = split_max_price(arguments)
    if not words or "=" in words[0] or words[0].startswith("-") or not all("=" in word for word in words[1:]):
        raise ConfigError(f"expected: {USAGES['study'].synopsis}; got: {' '.join(arguments) or 'nothing'}")
    file, given = Path(words[0]).absolute(), words[1:]
    for key in map(read_key, given):
        if not key.startswith(("hydra.", "hydra/")) and key.partition(".")[0] not in MAY_CHANGE:
            raise ConfigError(
                f"{key}: expected settings of how runs are executed (hydra.KEY, {'.KEY, '.join(MAY_CHANGE)}.KEY); the "
                "study file states all that decides their results"
            )
    study = record_study(file).study
    console.print(f"{study.question} {describe_plan(study)}", soft_wrap=True)
    # where there is no price to plan, a run of each method is enough
    planned = study if limit is not None else replace(study, seeds=study.seeds[:1])
    configs = compose_jobs(compose_runs(planned))
    warn_of_study(study, configs, console)
    if limit is not None:
        require_max_price(configs, limit)
    return run_hydra([*compose_sweep(study, file), *given])


def describe_plan(study: StatedStudy) -> str:
    """Say how many runs the study has."""
    arms, seeds = len(study.arms), len(study.seeds)
    return f"{arms} methods x {seeds} seed{'s' if seeds > 1 else ''} on {study.task}: {arms * seeds} runs."


def compose_sweep(study: StatedStudy, file: Path) -> list[str]:
    """Return the command line of a study's sweep, whose runs record the file."""
    return [*compose_runs(study), f"study={write_value('study', file)}"]
