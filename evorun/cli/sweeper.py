"""The jobs of a sweep: Hydra's product of values, also for each variant, and no job twice."""

import itertools
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from evorun.cli import invocation, local_launcher
from evorun.cli.explain import advise_on_experiment
from evorun.cli.invocation import BegunSweep
from evorun.cli.job_folders import Job, choose_folders
from evorun.cli.naming import SWEEP, remove_unused_run_dir
from evorun.cli.output import print_error, say, showing_progress
from evorun.cli.overrides import as_typed, permit_unlisted_key, words
from evorun.cli.plain import plain, with_absolute_paths
from evorun.cli.quoting import quoted
from evorun.cli.running import Foreseen, foresee
from evorun.cli.secrets import refuse_secrets
from evorun.cli.slurm_launcher import SlurmLauncher
from evorun.cli.study_record import study_of_sweep
from evorun.cli.sweep_keys import drop_inapplicable_keys
from evorun.errors import ConfigError, EvorunError, RunDirectoryError
from evorun.runs.directory import LOCK, refuse_other_version
from evorun.runs.files import take_lock
from evorun.runs.formats import counted
from evorun.runs.job_overrides import join_overrides
from evorun.runs.paths import display
from evorun.runs.sweeps import (
    SWEEP_MANIFEST,
    JobInSweep,
    SweepManifest,
    is_own_sweep,
    is_sweep,
    job_names,
    new_sweep,
    read_sweep,
    with_jobs,
    write_sweep,
)
from evorun.runs.terminal import Terminal

_plugins = Plugins.instance()  # executes Hydra's modules again: a class imported before would not be the one in use

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: E402

if TYPE_CHECKING:
    from evorun.tasks.base import LoadedTask

VARIANTS = "hydra.sweeper.variants"
IN_THIS_PROCESS = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"

_log = logging.getLogger(__name__)


class VariantSweeper(BasicSweeper):
    """Hydra's sweeper with variants (`conf/hydra/sweeper/variants.yaml`); it treats `++KEY` and `KEY` as equal.

    Before the first job starts, the sweep's folder has a manifest of all jobs, and is locked until the last one ended.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: Mapping[str, Any] | None = None,
        variants: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(max_batch_size=max_batch_size, params={} if params is None else params)  # type: ignore[arg-type]
        self.variants: Sequence[Mapping[str, Any]] = () if variants is None else variants
        self._lock: int | None = None

    def _parse_config(self) -> list[str]:
        return make_overrides(self.params)

    def sweep(self, arguments: list[str]) -> Any:
        assert self.config is not None  # noqa: S101 - Hydra has set it up
        try:
            self._check()
            return super().sweep(arguments)
        finally:  # leave no folder when all jobs are refused or cannot be composed
            remove_unused_run_dir(self._folder)
            if self._lock is not None:
                os.close(self._lock)

    @property
    def _folder(self) -> Path:
        assert self.config is not None  # noqa: S101 - Hydra has set it up
        return Path(self.config.hydra.sweep.dir).absolute()

    def _check(self) -> None:
        """Raise ConfigError for settings of the sweeper and the launcher that would fail only later."""
        assert self.config is not None  # noqa: S101 - Hydra has set it up
        size, variants = self.max_batch_size, self.variants
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ConfigError(f"hydra.sweeper.max_batch_size: expected a number >= 1, or null for all jobs, got {size}")
        if not isinstance(self.params, Mapping):
            raise ConfigError(f"hydra.sweeper.params: expected a mapping, {{KEY: VALUES, ...}}, got {self.params}")
        if not (isinstance(variants, Sequence) and all(isinstance(variant, Mapping) for variant in variants)):
            raise ConfigError("hydra.sweeper.variants: expected a list of mappings, [{KEY: VALUES, ...}, ...], or null")
        if isinstance(self.launcher, SlurmLauncher):
            self.launcher.check()

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Do nothing: `split_arguments` has composed all jobs."""

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:  # type: ignore[override]
        """Return the jobs' overrides, in batches: the product first, then each variant of it.

        Compose all jobs, report those that cannot run before an earlier job takes hours, and write the manifest.
        """
        assert self.config is not None and self.hydra_context is not None  # noqa: S101, PT018 - Hydra has set it up
        resumed, added = invocation.current.resumed, invocation.current.added
        if added is not None:
            jobs = [list(map(permit_unlisted_key, job)) for job in added.jobs]
        elif resumed is None:
            parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
            jobs = jobs_of_sweep(overrides, self.variants, parser)
            typed = [
                *overrides[len(self._parse_config()) :],
                *parser.parse_overrides(self.config.hydra.overrides.hydra),
            ]
            if (line := describe_variants(typed, self.variants)) is not None:
                Terminal().print(line, soft_wrap=True)
        else:
            jobs = [
                [*map(permit_unlisted_key, given), f"hydra.sweep.subdir={quoted(folder)}"]
                for folder, given in resumed.items()
            ]
        with showing_progress() as progress:
            numbered = enumerate(progress.track(jobs, description="composing the jobs"))
            composed = [self._compose(job, number) for number, job in numbered]
            earlier = read_sweep(self._folder) if is_sweep(self._folder) else None
            begun = earlier.jobs if earlier is not None and (self._folder / SWEEP).exists() else ()
            known = {frozenset(job.overrides) for job in begun}  # what has begun may need only its journal
            new = [number for number, job in enumerate(jobs) if frozenset(_list_typed(job)) not in known]
            if new:
                here = runs_here(self.config)
                described = f"checking the jobs{' and their data' if here else ''}"
                checked = progress.track([composed[number] for number in new], description=described)
                find_obstacles([jobs[number] for number in new], checked, here=here, alone=len(new) == len(jobs))
        if resumed is None:
            jobs = name_folders(jobs, composed, earlier.jobs if earlier is not None and is_own_sweep(earlier) else ())
        self._record(jobs, composed, earlier)
        return list(self.split_overrides_to_chunks(jobs, max_batch_size))

    def _compose(self, job: list[str], number: int) -> DictConfig:
        assert self.config is not None and self.hydra_context is not None  # noqa: S101, PT018 - Hydra has set it up
        composed = self.hydra_context.config_loader.load_sweep_config(self.config, job)
        with open_dict(composed):  # as launchers do: a job's folder may be named by its number
            composed.hydra.job.id = composed.hydra.job.num = number
        return composed

    def _record(
        self, jobs: Sequence[Sequence[str]], composed: Sequence[DictConfig], earlier: SweepManifest | None
    ) -> None:
        """Lock the sweep's folder and write the manifest there."""
        assert self.config is not None  # noqa: S101 - Hydra has set it up
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = take_lock(folder / LOCK)
        except BlockingIOError as error:
            raise RunDirectoryError(
                f"another evorun process is carrying out the sweep in {display(folder)}; wait for it or stop it"
            ) from error
        recorded = []
        for job, config in zip(jobs, composed, strict=True):
            HydraConfig.instance().set_config(config)  # the folder's name reads it
            recorded.append(JobInSweep(str(config.hydra.sweep.subdir), _list_typed(job)))
        launcher = self.config.hydra.runtime.choices["hydra/launcher"]
        study = study_of_sweep({str(config.study) for config in composed if config.get("study")}, folder, earlier)
        added = invocation.current.added
        commands = [] if added is None else [["evorun", *command] for command in added.commands]
        sweep = new_sweep(["evorun", *invocation.current.typed], launcher, recorded, study, commands)
        if earlier is not None:
            refuse_other_version(folder, earlier.evorun_version)
            if is_own_sweep(earlier):
                sweep = with_jobs(earlier, sweep)
            else:  # to keep them would make them this user's own
                _log.warning(
                    "%s lists jobs of a sweep that you did not start: it keeps this command's only",
                    display(folder / SWEEP_MANIFEST),
                )
        write_sweep(folder, sweep)
        names = {job.folder: name for job, name in zip(sweep.jobs, job_names(sweep.jobs), strict=True)}
        invocation.current.sweep = BegunSweep(folder, recorded, names)
        if earlier is not None and is_own_sweep(earlier):
            known = {job.folder for job in earlier.jobs}
            new = [name for job, name in names.items() if job not in known]
            if new or added is not None:
                Terminal().print(describe_added(new, len(sweep.jobs) - len(new), display(folder)), soft_wrap=True)


def describe_added(names: Sequence[str], before: int, folder: str) -> str:
    """Return a line that says how many jobs each arm of a sweep gets. names: of new jobs. before: number of the others.

    Names that differ in the seed alone are those of an arm.
    """
    arms = Counter(" ".join(word for word in name.split() if not word.startswith("seed=")) for name in names)
    per_arm = "; ".join(f"{count} of {arm}" if arm else str(count) for arm, count in arms.items())
    listed = f": {per_arm}" if len(arms) > 1 or any(arms) else ""
    return f"adds {counted(len(names), 'job')} to the {before:,} of {folder}{listed}"


def name_folders(
    jobs: Sequence[list[str]], composed: Sequence[DictConfig], earlier: Sequence[JobInSweep]
) -> list[list[str]]:
    """Return the jobs, each with an override that names its folder, unless the user's own setting names it."""
    unnamed = []
    for job, config in zip(jobs, composed, strict=True):
        HydraConfig.instance().set_config(config)
        chosen = config.hydra.runtime.choices
        unnamed.append(Job(f"{chosen.method}_{chosen.task}", _list_typed(job), str(config.hydra.sweep.subdir)))
    named = []
    for job, config, folder in zip(jobs, composed, choose_folders(unnamed, earlier), strict=True):
        setting: Any = OmegaConf.to_container(config.hydra.sweep, resolve=False)
        if "evorun_job" not in setting["subdir"]:
            named.append(job)
            continue
        with read_write(config.hydra):  # `set_config` has locked it
            config.hydra.sweep.subdir = folder
        named.append([*job, f"hydra.sweep.subdir={quoted(folder)}"])
    return named


def _list_typed(job: Sequence[str]) -> tuple[str, ...]:
    """Return a job's overrides as typed, but for the name of its folder."""
    return tuple(as_typed(word) for word in job if not word.startswith("hydra.sweep.subdir="))


def runs_here(config: DictConfig) -> bool:
    """Return whether a sweep's jobs run on this machine and while this process goes on."""
    return config.hydra.launcher.get("_target_") in (IN_THIS_PROCESS, local_launcher.TARGET)


def find_obstacles(
    jobs: Sequence[Sequence[str]], composed: Iterable[DictConfig], *, here: bool, alone: bool = True
) -> None:
    """Print why jobs cannot run, and their warnings, each line once. Raises ConfigError where none can run.

    here: on this machine. A machine that only submits jobs need not be able to run them, and obstacles are warnings.
    alone: no job beside these is to run; otherwise the others run also where none of these can.
    """
    differing = join_overrides([[as_typed(word) for word in job if not word.startswith("seed=")] for job in jobs])
    without = ", without variants" if any(differing) else ""
    found: dict[str, Foreseen] = {}
    loaded: dict[str, LoadedTask] | None = {} if here else None
    for words_of_arm, config in zip(differing, composed, strict=True):
        arm = words_of_arm or f"method={config.hydra.runtime.choices.method}{without}"
        if arm not in found:
            found[arm] = _foresee(config, loaded)
    arms: dict[str | None, list[str]] = {}
    warned: dict[str, list[str]] = {}
    for arm, foreseen in found.items():
        arms.setdefault(foreseen.obstacle, []).append(arm)
        for warning in foreseen.warnings:
            warned.setdefault(warning, []).append(arm)
    able = arms.pop(None, None)
    refused = here and alone and able is None
    if refused and len(arms) == 1:
        raise ConfigError(next(filter(None, arms)))
    for reason, unable in arms.items():
        line = f"a job of this sweep {'cannot' if here else 'may not'} run ({'; '.join(unable)}): {reason}"
        if here:
            invocation.current.is_said(str(reason))
            print_error(line)
        else:
            say("warning", line, "bold yellow")
    if refused:
        raise ConfigError(f"none of the {len(jobs)} jobs of this sweep can run")
    for warning, given_by in warned.items():
        if not invocation.current.is_said(warning):
            names = "; ".join(given_by)
            said = (alone and len(given_by) == len(found)) or warning.startswith(f"{names} ")
            say("warning", warning if said else f"{names}: {warning}", "bold yellow")


def _foresee(composed: DictConfig, loaded: "dict[str, LoadedTask] | None") -> Foreseen:
    HydraConfig.instance().set_config(composed)  # the names of arms read it
    try:
        values = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
        refuse_secrets(values)  # before resolution, which could show one in an error
        foreseen = foresee(with_absolute_paths(plain(values)), loaded)
    except EvorunError as error:
        foreseen = Foreseen(str(error))
    if foreseen.obstacle is None:
        return foreseen
    return foreseen._replace(obstacle=advise_on_experiment(foreseen.obstacle))


def jobs_of_sweep(
    overrides: Sequence[Override], variants: Sequence[Mapping[str, Any]], parser: OverridesParser
) -> list[list[str]]:
    """Return each job's overrides, no job twice: the product of the given values, then that of each variant.

    Variants make up the sweep where each chooses a method and nothing else does: nobody asked for the default one.
    Raises ConfigError for a key without values, or one that no method, task or engine in the sweep has.
    """
    chooses = any(_read_key(override) in ("method", "experiment") for override in overrides)
    alone = bool(variants) and not chooses and all("method" in variant for variant in variants)
    jobs: dict[frozenset[str], list[str]] = {}
    for variant in [*([] if alone else [{}]), *variants]:
        product = {**values_by_key(overrides), **values_by_key(parser.parse_overrides(make_overrides(variant)))}
        for job in map(list, itertools.product(*product.values())):
            jobs.setdefault(frozenset(job), job)
    return list({frozenset(job): job for job in drop_inapplicable_keys(list(jobs.values()))}.values())


def describe_variants(typed: Sequence[Override], variants: Sequence[Mapping[str, Any]]) -> str | None:
    """Say that an experiment's variants come on top of values that were typed for keys that they set; None if none do.

    Random baselines cost nothing, and are not named. typed: the overrides of the command line.
    """
    given = {_read_key(override): override.input_line for override in typed}
    if "experiment" not in given or VARIANTS in given:
        return None
    on_top = [variant for variant in variants if given.keys() & variant.keys() and variant.get("model") != "random"]
    if not on_top:
        return None
    typed_keys = [str(line) for key, line in given.items() if any(key in variant for variant in on_top)]
    listed = "; ".join(f"{{{', '.join(f'{key}: {value}' for key, value in variant.items())}}}" for variant in on_top)
    return (
        f"{' '.join(typed_keys)}: on top come variants of {given['experiment']} that set this themselves, {listed}; "
        f"{VARIANTS}=null leaves all variants out, random baselines too"
    )


def make_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return the values of a YAML file as overrides of a command line."""
    given = (f"{key}={'null' if value is None else value}" for key, value in values.items())
    return [word for argument in given for word in words(argument)]


def values_by_key(overrides: Sequence[Override]) -> dict[str, list[str]]:
    """Return the values to try for each key; the last override of a key counts."""
    tried = {}
    for override in overrides:
        if override.is_sweep_override() and not override.is_discrete_sweep():
            raise HydraException(
                f"{override.input_line}: expected values to sweep over, such as {override.key_or_group}=1,2"
            )
        key, single = override.get_key_element(), not override.is_sweep_override()
        values = [override.get_value_element_as_str()] if single else list(override.sweep_string_iterator())
        if not values:
            raise ConfigError(f"{override.input_line}: expected at least one value to sweep over, got none")
        tried[_read_key(override)] = [f"{key}={value}" for value in values]
    return tried


def _read_key(override: Override) -> str:
    return override.get_key_element().lstrip("+~")


# Under another name, Hydra would look for the class in a package `hydra_plugins`, and so would every other program of
# the environment that uses Hydra.
_plugins.class_name_to_class[f"{BasicSweeper.__module__}.{BasicSweeper.__name__}"] = VariantSweeper
