"""The jobs of a sweep: Hydra's product of values, also for each variant, and no job twice."""

import itertools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from evorun.cli.naming import SWEEP, remove_unused_run_dir
from evorun.cli.output import print_error
from evorun.cli.overrides import as_typed, words
from evorun.cli.plain import plain, with_absolute_paths
from evorun.cli.secrets import refuse_secrets
from evorun.cli.sweep_end import Sweep
from evorun.cli.sweep_keys import drop_inapplicable_keys
from evorun.errors import ConfigError, EvorunError

_plugins = Plugins.instance()  # executes Hydra's modules again: a class imported before would not be the one in use

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: E402

IN_THIS_PROCESS = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"

begun: list[Sweep] = []
"""The sweep of this command line, once its jobs are known; Hydra does not return it."""


class VariantSweeper(BasicSweeper):
    """Hydra's sweeper with variants (`conf/hydra/sweeper/variants.yaml`); it treats `++KEY` and `KEY` as equal."""

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: Mapping[str, Any] | None = None,
        variants: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(max_batch_size=max_batch_size, params={} if params is None else params)  # type: ignore[arg-type]
        self.variants = variants
        self._continues = False
        """True for a sweep that began earlier: its jobs may need only their journals."""

    def _parse_config(self) -> list[str]:
        return make_overrides(self.params)

    def sweep(self, arguments: list[str]) -> Any:
        try:
            self._check()
            self._continues = (Path(self.config.hydra.sweep.dir) / SWEEP).exists()  # type: ignore[union-attr]
            return super().sweep(arguments)
        except Exception as error:
            if type(error).__module__.startswith("submitit."):
                reason = " ".join(str(error).split())
                raise ConfigError(
                    f"hydra/launcher: expected jobs that the cluster accepts, it said: {reason}"
                ) from error
            raise
        finally:  # leave no folder when all jobs are refused or cannot be composed
            assert self.config is not None  # noqa: S101 - Hydra has set it up
            remove_unused_run_dir(Path(self.config.hydra.sweep.dir).absolute())

    def _check(self) -> None:
        """Raise ConfigError for settings of the sweeper and the launcher that would fail only later."""
        assert self.config is not None  # noqa: S101 - Hydra has set it up
        size, variants = self.max_batch_size, self.variants
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ConfigError(f"hydra.sweeper.max_batch_size: expected a number >= 1, or null for all jobs, got {size}")
        if not isinstance(self.params, Mapping):
            raise ConfigError(f"hydra.sweeper.params: expected a mapping, {{KEY: VALUES, ...}}, got {self.params}")
        if not (isinstance(variants, Sequence) and all(isinstance(variant, Mapping) for variant in variants)):
            raise ConfigError("hydra.sweeper.variants: expected a list of mappings, [{KEY: VALUES, ...}, ...]")
        if str(self.config.hydra.launcher.get("_target_")).endswith("SlurmLauncher") and shutil.which("srun") is None:
            raise ConfigError(
                "hydra/launcher=slurm: expected a machine that submits SLURM jobs, found no srun on PATH; log in to "
                "the cluster, or leave the launcher out to run the jobs here, one after the other"
            )

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose all jobs, and report those that cannot run before an earlier job takes hours."""
        assert self.config is not None and self.hydra_context is not None  # noqa: S101, PT018 - Hydra has set it up
        composed = [self.hydra_context.config_loader.load_sweep_config(self.config, list(job)) for job in batch]
        # A machine that only submits jobs need not be able to run them.
        if self._continues or self.config.hydra.launcher.get("_target_") != IN_THIS_PROCESS:
            return
        common = set.intersection(*map(set, batch))
        found: dict[str, str | None] = {}
        for job, config in zip(batch, composed, strict=True):
            arm = " ".join(as_typed(word) for word in job if word not in common and not word.startswith("seed="))
            if arm not in found:
                found[arm] = _obstacle(config)
                # If no earlier job can run, this one comes first and reports its error itself.
                if found[arm] is not None and None in found.values():
                    print_error(f"a later job of this sweep cannot run ({arm}): {found[arm]}")

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:  # type: ignore[override]
        """Return the jobs' overrides, in batches: the product first, then each variant of it."""
        assert self.config is not None and self.hydra_context is not None  # noqa: S101, PT018 - Hydra has set it up
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        jobs = jobs_of_sweep(overrides, self.variants, parser)
        in_this_process = self.config.hydra.launcher.get("_target_") == IN_THIS_PROCESS
        begun.append(Sweep(Path(self.config.hydra.sweep.dir).absolute(), jobs, in_this_process))
        return list(self.split_overrides_to_chunks(jobs, max_batch_size))


def _obstacle(composed: DictConfig) -> str | None:
    """Return why a composed job cannot run, judged without its data; None if it can."""
    from evorun.cli.running import obstacle

    HydraConfig.instance().set_config(composed)  # the names of arms read it
    try:
        values = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
        refuse_secrets(values)  # before resolution, which could show one in an error
        return obstacle(with_absolute_paths(plain(values)))
    except EvorunError as error:
        return str(error)


def jobs_of_sweep(
    overrides: Sequence[Override], variants: Sequence[Mapping[str, Any]], parser: OverridesParser
) -> list[list[str]]:
    """Return each job's overrides, no job twice: the product of the given values, then that of each variant.

    Raises ConfigError for a key without values, or one that no method, task or engine in the sweep has.
    """
    jobs: dict[frozenset[str], list[str]] = {}
    for variant in [{}, *variants]:
        product = {**_by_key(overrides), **_by_key(parser.parse_overrides(make_overrides(variant)))}
        for job in map(list, itertools.product(*product.values())):
            jobs.setdefault(frozenset(job), job)
    return list({frozenset(job): job for job in drop_inapplicable_keys(list(jobs.values()))}.values())


def make_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return the values of a YAML file as overrides of a command line."""
    given = (f"{key}={'null' if value is None else value}" for key, value in values.items())
    return [word for argument in given for word in words(argument)]


def _by_key(overrides: Sequence[Override]) -> dict[str, list[str]]:
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
        tried[key.lstrip("+~")] = [f"{key}={value}" for value in values]
    return tried


# Under another name, Hydra would look for the class in a package `hydra_plugins`, and so would every other program of
# the environment that uses Hydra.
_plugins.class_name_to_class[f"{BasicSweeper.__module__}.{BasicSweeper.__name__}"] = VariantSweeper
