"""The composed configurations of the runs that a command line stands for, without running any of them."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from evorun.cli.compose import register, yaml_values
from evorun.cli.explain import explain
from evorun.cli.job_command import CONFIG_DIR, SEARCHPATH
from evorun.cli.overrides import OF_LAUNCHER, as_typed, check_command_line, read_key, words
from evorun.cli.plain import composed, composed_launcher, with_absolute_paths
from evorun.cli.quoting import write_value
from evorun.cli.sweeper import VARIANTS, describe_variants, jobs_of_sweep, make_overrides
from evorun.errors import ConfigError
from evorun.runner import registry
from evorun.runner.task_settings import read_task
from evorun.runner.typed import typed
from evorun.runs.job_overrides import join_overrides
from evorun.runs.paths import display
from evorun.runs.stated_studies import StatedStudy

MULTIRUN = ("-m", "--multirun")


def compose_jobs(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Return the configuration of each run that the arguments of a run, a sweep or an experiment stand for.

    Raises ConfigError for arguments that compose none.
    """
    arguments, folder = _split_config_dir(arguments)
    return _compose_all(_list_jobs(arguments, folder), folder)


def compose_launcher(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the launcher, with its class as `_target_`, that the arguments choose.

    Raises ConfigError.
    """
    arguments, folder = _split_config_dir(arguments)
    chosen = [word for word in _check_given(arguments) if word.lstrip("+").startswith((*OF_LAUNCHER, "experiment="))]
    return composed_launcher([*chosen, *_searched(folder)])


def list_typed_jobs(arguments: Sequence[str]) -> dict[tuple[str, frozenset[str]], list[str]]:
    """Return the overrides, as typed, of each run that the arguments stand for. Raises as `compose_jobs`.

    They come by the run's seed, given or by default, and its other overrides: equal keys are equal runs.
    """
    arguments, folder = _split_config_dir(arguments)
    jobs = {}
    for job in _list_jobs(arguments, folder):
        typed_words = list(map(as_typed, job))
        seeds = [word for word in typed_words if read_key(word) == "seed"]
        seed = seeds[-1] if seeds else f"seed={_compose(job, folder)['seed']}"
        jobs[seed, frozenset(typed_words) - set(seeds)] = typed_words
    return jobs


def compose_experiment(experiment: str, given: Sequence[str]) -> list[dict[str, Any]]:
    """Return the configurations of an experiment's runs but those of the random model; given: further arguments.

    An experiment that sweeps nothing has one run. Raises ConfigError for an unknown experiment or key.
    """
    given, folder = _split_config_dir(given)
    jobs = _list_jobs([MULTIRUN[0], f"experiment={experiment}", *given], folder)
    configs = [_compose(job, folder) for job in jobs if not _is_random(job) or _is_random(given)]
    for config in configs:
        typed(registry.method_class(config["method"]["name"]).Config, config["method"], "method")
        read_task(config)
    return configs


def count_random_jobs(experiment: str) -> int:
    """Return the number of an experiment's runs by the random model, which `compose_experiment` leaves out."""
    return sum(map(_is_random, _list_jobs([MULTIRUN[0], f"experiment={experiment}"])))


def _split_config_dir(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """Return the arguments without Hydra's option for a folder of configurations, and that folder."""
    kept, folder = list[str](), None
    left = iter(arguments)
    for argument in left:
        option, equals, value = argument.partition("=")
        if option != CONFIG_DIR:
            kept.append(argument)
            continue
        folder = Path(value if equals else next(left, "")).absolute()
        if not folder.is_dir():
            raise ConfigError(f"{CONFIG_DIR}: expected a folder of configurations, found none at {display(folder)}")
    return kept, folder


class _Sweep(NamedTuple):
    """A sweep's jobs as its arguments and its experiment give them."""

    of_experiment: list[Override]
    typed: list[Override]
    variants: Sequence[Mapping[str, Any]]


def _list_jobs(arguments: Sequence[str], folder: Path | None = None) -> list[list[str]]:
    """Return the overrides of each run that the arguments stand for; folder: of the user's own configurations."""
    given = _check_given(arguments)
    with _in_a_line():
        sweep = _read_sweep(arguments, given, folder)
        if sweep is None:
            return [given]
        overrides = [*sweep.of_experiment, *sweep.typed]
        kept = [override for override in overrides if not override.get_key_element().lstrip("+").startswith("hydra")]
        return jobs_of_sweep(kept, sweep.variants, OverridesParser.create())


def describe_variants_on_top(arguments: Sequence[str]) -> str | None:
    """Say which variants of an experiment come on top of what was typed, as `describe_variants`; None where none do.

    Raises ConfigError.
    """
    arguments, folder = _split_config_dir(arguments)
    with _in_a_line():
        sweep = _read_sweep(arguments, _check_given(arguments), folder)
        return None if sweep is None else describe_variants(sweep.typed, sweep.variants)


def _check_given(arguments: Sequence[str]) -> list[str]:
    """Return the overrides among the arguments. Raises ConfigError for others."""
    given = [word for argument in arguments if argument not in MULTIRUN for word in words(argument)]
    if options := [word for word in given if word.startswith("-")]:
        raise ConfigError(f"{options[0]}: expected KEY=VALUE, as for a run, and -m for a sweep")
    check_command_line([*given, *(word for word in arguments if word in MULTIRUN)])
    register(given)
    return given


def _read_sweep(arguments: Sequence[str], given: Sequence[str], folder: Path | None) -> _Sweep | None:
    """Return the sweep that the arguments stand for; None for a single run. given: the overrides among them."""
    experiment = next((word.partition("=")[2] for word in reversed(given) if word.startswith("experiment=")), None)
    hydra: Any = {}
    if experiment:  # Hydra takes a file of evorun's own before one of the same name in the folder
        values = yaml_values("experiment", experiment) or yaml_values("experiment", experiment, folder)
        hydra = values.get("hydra", {})
    if not set(MULTIRUN) & set(arguments) and hydra.get("mode") != "MULTIRUN":
        return None
    sweeper, parser = hydra.get("sweeper", {}), OverridesParser.create()
    typed_overrides = parser.parse_overrides(list(given))
    own = [override.value() for override in typed_overrides if override.get_key_element().lstrip("+") == VARIANTS]
    variants: Any = own[-1] if own else sweeper.get("variants", ())
    return _Sweep(parser.parse_overrides(make_overrides(sweeper.get("params", {}))), typed_overrides, variants or ())


@contextlib.contextmanager
def _in_a_line() -> Iterator[None]:
    """Raise ConfigError in a line for what Hydra refuses."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error


def _compose_all(jobs: Sequence[Sequence[str]], folder: Path | None) -> list[dict[str, Any]]:
    """Return the configuration of each job. Raises ConfigError, which names the jobs that have none if others have."""
    arms = join_overrides([[as_typed(word) for word in job if read_key(word) != "seed"] for job in jobs])
    found = list[dict[str, Any]]()
    refused: dict[str, list[str]] = {}
    for arm, job in zip(arms, jobs, strict=True):
        try:
            found.append(_compose(job, folder))
        except ConfigError as error:
            refused.setdefault(str(error), []).append(arm or "the one without variants")
    for reason, unable in refused.items():
        if len(unable) == len(jobs):
            raise ConfigError(reason)
        first, *others = dict.fromkeys(unable)
        named = f"{first}; {len(others)} more" if others else first
        raise ConfigError(f"a job of this sweep cannot run ({named}): {reason}")
    return found


def _compose(overrides: Sequence[str], folder: Path | None = None) -> dict[str, Any]:
    kept = [
        word
        for override in (*overrides, *_searched(folder))
        if override.startswith(SEARCHPATH) or not override.lstrip("+").startswith("hydra")
        for word in words(override)
    ]
    return with_absolute_paths(composed(kept))


def _searched(folder: Path | None) -> list[str]:
    """Return the override that has Hydra look for configurations in a folder of the user's own."""
    return [] if folder is None else [f"{SEARCHPATH}[{write_value(SEARCHPATH, f'file://{folder}')}]"]


def _is_random(overrides: Sequence[str]) -> bool:
    return "model=random" in overrides


def compose_runs(study: StatedStudy) -> list[str]:
    """Return the command line of a study's runs: the control, and each method as a variant of it."""
    control, *methods = study.arms
    return [
        "-m",
        *(f"{key}={write_value(key, value)}" for key, value in {**study.common, **control}.items()),
        f"seed={','.join(map(str, study.seeds))}",
        f"{VARIANTS}={write_value(VARIANTS, methods)}",
    ]
