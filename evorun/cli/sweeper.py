"""The jobs of a sweep: Hydra's product of values, with variants of the whole, and no job twice."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException

from evorun.cli.naming import withdraw
from evorun.cli.overrides import words

_plugins = Plugins.instance()  # executes Hydra's own modules anew: a class imported before would not be the one it uses

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: E402


class VariantSweeper(BasicSweeper):
    """Hydra's sweeper with variants (`conf/hydra/sweeper/variants.yaml`); `++KEY` and `KEY` are one key to it."""

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: Mapping[str, Any] | None = None,
        variants: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(max_batch_size=max_batch_size, params=dict(params or {}))
        self.variants = variants

    def _parse_config(self) -> list[str]:
        return _overrides(self.params)

    def sweep(self, arguments: list[str]) -> Any:
        try:
            return super().sweep(arguments)
        finally:  # of jobs that are refused all, or cannot be composed, no folder is left
            assert self.config is not None  # noqa: S101 - Hydra has set it up
            withdraw(Path(self.config.hydra.sweep.dir).absolute())

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:  # type: ignore[override]
        """Return the jobs' overrides, in batches: the product first, then each variant of it."""
        parser = OverridesParser.create()
        jobs: dict[frozenset[str], list[str]] = {}
        if not all(isinstance(variant, Mapping) for variant in self.variants):
            raise HydraException("hydra.sweeper.variants: expected a list of mappings, [{KEY: VALUES, ...}, ...]")
        for variant in [{}, *self.variants]:
            product = {**_by_key(overrides), **_by_key(parser.parse_overrides(_overrides(variant)))}
            for job in map(list, itertools.product(*product.values())):
                jobs.setdefault(frozenset(job), job)
        return list(self.split_overrides_to_chunks(list(jobs.values()), max_batch_size))


def _overrides(values: Mapping[str, Any]) -> list[str]:
    """Write the values of a YAML file as a command line has them."""
    given = (f"{key}={'null' if value is None else value}" for key, value in values.items())
    return [word for argument in given for word in words(argument)]


def _by_key(overrides: Sequence[Override]) -> dict[str, list[str]]:
    """Return what to try for each key, the last that was given for it."""
    tried = {}
    for override in overrides:
        if override.is_sweep_override() and not override.is_discrete_sweep():
            raise HydraException(
                f"{override.input_line}: expected values to sweep over, such as {override.key_or_group}=1,2"
            )
        key, one = override.get_key_element(), not override.is_sweep_override()
        values = [override.get_value_element_as_str()] if one else override.sweep_string_iterator()
        tried[key.lstrip("+~")] = [f"{key}={value}" for value in values]
    return tried


# Under a name of its own Hydra would look for it in a package `hydra_plugins`, and so would every other program of the
# environment that uses Hydra.
_plugins.class_name_to_class[f"{BasicSweeper.__module__}.{BasicSweeper.__name__}"] = VariantSweeper
