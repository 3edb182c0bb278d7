"""Hydra's composition without the work that it repeats each time.

Hydra composes a run twice and each job of a sweep twice. Each time it parses its files, copies all stored choices, and
lists the choices so far in every file that it reads. What it composes stays the same: tests/test_hydra_cache.py.
"""

import pickle
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra._internal import defaults_list
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import InputDefault
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig


@cache
def compose_faster() -> None:
    """Make every later composition of this process faster."""
    Plugins.instance()  # registers the classes that read files
    for scheme in ("file", "pkg"):
        _parse_once(SourcesRegistry.instance().resolve(scheme))
    # Hydra copies its sources so as not to change their list; the store that they refer to is one for the process.
    ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]
    _list_choices_where_asked()


def _parse_once(source: type[ConfigSource]) -> None:
    """Keep what a kind of source has read. A composition changes its values: each one has its own, from a pickle."""
    read = source.load_config
    kept: dict[tuple[object, ...], bytes] = {}

    def load_config(self: ConfigSource, config_path: str) -> ConfigResult:
        key = (self.provider, self.path, config_path, *_state(Path(self.path, self._normalize_file_name(config_path))))
        if key not in kept:
            kept[key] = pickle.dumps(read(self, config_path))
        result: ConfigResult = pickle.loads(kept[key])  # noqa: S301 - this process wrote it
        return result

    source.load_config = load_config  # type: ignore[method-assign]


def _state(file: Path) -> tuple[int, ...]:
    """Return what changes when a file does; nothing of a file within a package, which stays."""
    try:
        stat = file.stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _list_choices_where_asked() -> None:
    """List the choices so far only for files whose defaults depend on them (`method_on_task: ${method}_on_${task}`)."""
    listed = defaults_list._create_interpolation_map

    def choices_so_far(overrides: Any, defaults: Sequence[InputDefault], self_added: bool) -> DictConfig | None:
        asked = any(default.is_interpolation() for default in defaults)
        return listed(overrides, list(defaults), self_added) if asked else None

    defaults_list._create_interpolation_map = choices_so_far  # type: ignore[assignment]
