"""Hydra's composition without the work that it repeats each time.

Hydra composes a run twice, first to see whether it is a sweep, and each job of a sweep twice. Each time it parses its
files, the overrides and the same few references, copies all stored choices, lists the choices so far in every file that
it reads, and merges some two dozen of them, although most compositions differ in single values only. What it composes
stays the same: tests/test_hydra_cache.py.
"""

import dataclasses
import itertools
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import omegaconf._utils
import omegaconf.base
from hydra import version
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.defaults_list import DefaultsList
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import DefaultsTreeNode, GroupDefault, InputDefault, ResultDefault
from hydra.core.override_parser import overrides_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from evorun.cli.omegaconf_shortcuts import take_shortcuts

T = TypeVar("T")

_embed = ConfigLoaderImpl._load_single_config


@cache
def compose_faster() -> None:
    """Make every later composition of this process faster."""
    Plugins.instance()  # registers the classes that read files
    _load_once()
    # Hydra copies its sources so as not to change their list; the store that they refer to is one for the process.
    ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]
    _parse_references_once()
    _parse_overrides_once()
    _list_choices_where_asked()
    _merge_once()
    _copy_by_pickle()
    take_shortcuts()


class _Recalled:
    """Results for a path, kept as long as no file and no stored choice changes that it may stand for."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[list[Any], Any]] = {}

    def get(self, path: str, about: tuple[object, ...], sources: Sequence[ConfigSource], make: Callable[[], T]) -> T:
        """Return what `make` returns, from the last time where its sources are still as they were then."""
        key, states = (path, about, _places(sources)), _states(sources, {path})
        if key not in self._known or not _same(self._known[key][0], states):
            self._known[key] = states, make()
        made: T = self._known[key][1]
        return made


_embedded = _Recalled()


def _load_pickled(loader: ConfigLoaderImpl, default: ResultDefault, repo: Any) -> bytes:
    """Return the pickle of what is loaded and put under its package: the same object as long as that stays."""
    about = (default.package, default.primary)
    return _embedded.get(
        str(default.config_path), about, repo.get_sources(), lambda: pickle.dumps(_embed(loader, default, repo))
    )


def _load_once() -> None:
    """Keep what is loaded, and what it is under a package.

    The list of choices only reads the former. The configuration takes over the nodes of the latter and changes them:
    each one has its own, from a pickle.
    """
    load = ConfigRepository.load_config
    loaded = _Recalled()

    def load_config(self: ConfigRepository, config_path: str) -> ConfigResult | None:
        return loaded.get(config_path, (), self.sources, lambda: load(self, config_path))

    def load_single_config(self: ConfigLoaderImpl, default: ResultDefault, repo: Any) -> ConfigResult:
        result: ConfigResult = pickle.loads(_load_pickled(self, default, repo))  # noqa: S301 - this process wrote it
        return result

    ConfigRepository.load_config = load_config  # type: ignore[method-assign]
    ConfigLoaderImpl._load_single_config = load_single_config  # type: ignore[method-assign]


def _parse_references_once() -> None:
    """Keep the parsed form of values such as `${method}_on_${task}`, which nothing changes, and of Hydra's versions."""
    omegaconf.base.parse = omegaconf._utils.parse = cache(omegaconf.base.parse)  # type: ignore[attr-defined]
    version._get_version = cache(version._get_version)


def _parse_overrides_once() -> None:
    """Keep the parsed form of overrides. Hydra changes them: each composition has its own, from a pickle.

    The functions that overrides may call (`range(1, 4)`) stay the same, and describing them takes a millisecond.
    """
    overrides_parser.create_functions = cache(overrides_parser.create_functions)
    parse = OverridesParser.parse_rule
    kept: dict[tuple[str, str], bytes] = {}

    def parse_rule(self: OverridesParser, s: str, rule_name: str) -> Any:
        if (s, rule_name) not in kept:
            kept[s, rule_name] = pickle.dumps(parse(self, s, rule_name))
        return pickle.loads(kept[s, rule_name])  # noqa: S301 - this process wrote it

    OverridesParser.parse_rule = parse_rule  # type: ignore[method-assign]


def _state(file: str) -> tuple[int, ...]:
    """Return what changes when a file does; nothing of a file within a package, which stays."""
    try:
        stat = os.stat(file)
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _list_choices_where_asked() -> None:
    """List the choices so far only for files whose defaults depend on them (`method_on_task: ${method}_on_${task}`)."""
    listed = defaults_list._create_interpolation_map
    refers = GroupDefault.is_interpolation

    def choices_so_far(overrides: Any, defaults: Sequence[InputDefault], self_added: bool) -> DictConfig | None:
        asking = [default for default in defaults if default.is_interpolation()]
        # By their places (`${defaults.0}`) they are hardly ever asked for, and listing them so takes longest.
        placed = defaults if any("defaults" in default.get_config_path() for default in asking) else ()
        return listed(overrides, list(placed), self_added) if asking else None

    def is_interpolation(self: GroupDefault) -> bool:
        return "${" in str(self.value) and refers(self)

    defaults_list._create_interpolation_map = choices_so_far  # type: ignore[assignment]
    GroupDefault.is_interpolation = is_interpolation  # type: ignore[method-assign]


def _copy_by_pickle() -> None:
    """Copy configurations, as Hydra does several times for a job, by a pickle; those that have none node by node."""
    copy_nodes = DictConfig.__deepcopy__

    def copy(self: DictConfig, memo: dict[int, Any]) -> DictConfig:
        parent, self.__dict__["_parent"] = self.__dict__["_parent"], None  # kept, not copied
        try:
            copied: DictConfig = pickle.loads(pickle.dumps(self))  # noqa: S301 - this process wrote it
        except (AttributeError, TypeError, pickle.PicklingError):
            copied = copy_nodes(self, memo)
        finally:
            self.__dict__["_parent"] = parent
        copied.__dict__["_parent"] = parent
        return copied

    DictConfig.__deepcopy__ = copy  # type: ignore[method-assign]


class _Asked:
    """A repository of configurations that notes for which paths it is asked."""

    def __init__(self, repository: Any) -> None:
        self._repository = repository
        self.paths: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._repository, name)

        def noting(*args: Any, **named: Any) -> Any:
            self.paths.update(value for value in (*args, *named.values()) if isinstance(value, str))
            return method(*args, **named)

        return noting


@dataclass
class _Kept:
    """The result of a composition's choices."""

    listed: DefaultsList
    paths: set[str]
    """Files and stored choices that the composition looked for, there or not."""
    states: list[Any]
    """Of the paths, in each source; stored choices themselves, so that no other one can have their identity."""
    merged: bytes | None = None
    """The pickled configuration, before values of the command line."""
    sets_mode: bool | None = None
    """True where it sets `hydra.mode`; None until somebody asks."""


def _places(sources: Sequence[ConfigSource]) -> tuple[tuple[str, str], ...]:
    return tuple((source.provider, source.path) for source in sources)


def _states(sources: Sequence[ConfigSource], paths: set[str]) -> list[Any]:
    """Return what changes when a file or a stored choice does that a path may stand for."""
    found: list[Any] = []
    for source in sources:
        names = {path: source._normalize_file_name(path) for path in paths if path}
        if source.scheme() == "file":
            found += [_state(os.path.join(source.path, name)) for names_of in names.items() for name in names_of]
        elif source.scheme() == "structured":
            store = ConfigStore.instance()
            found += [store._open(name) for name in names.values()]
            found += [sorted(group) for path in names if isinstance(group := store._open(path), dict)]
    return found


def _leaves_open(element: DefaultsTreeNode | InputDefault) -> bool:
    """Return whether a choice is `???`: a sweep leaves it out, a run refuses it."""
    if isinstance(element, DefaultsTreeNode):
        return any(map(_leaves_open, [element.node, *(element.children or ())]))
    return isinstance(element, GroupDefault) and element.is_missing()


def _same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return len(first) == len(second) and all(
        left is right or (isinstance(left, tuple | list) and left == right)
        for left, right in zip(first, second, strict=True)
    )


_merged_first: dict[tuple[bytes, ...], bytes] = {}
"""Hydra's own files merged, as a pickle, by the pickles of the single files."""


def _merge(loader: ConfigLoaderImpl, defaults: Sequence[ResultDefault], repo: Any) -> DictConfig:
    """Merge files one after another, as Hydra does; its own, which come first, once.

    What has new keys is put under them: OmegaConf looks through all that is merged so far each time that it merges
    something into it.
    """
    own = list(itertools.takewhile(lambda default: str(default.config_path).startswith("hydra/"), defaults))
    key = tuple(_load_pickled(loader, default, repo) for default in own)
    if key not in _merged_first:
        _merged_first[key] = pickle.dumps(_merge_into(OmegaConf.create(), loader, own, repo))
    first: DictConfig = pickle.loads(_merged_first[key])  # noqa: S301 - this process wrote it
    config = _merge_into(first, loader, defaults[len(own) :], repo)
    _strip_defaults(config)
    return config


def _merge_into(
    config: DictConfig, loader: ConfigLoaderImpl, defaults: Sequence[ResultDefault], repo: Any
) -> DictConfig:
    with flag_override(config, "no_deepcopy_set_nodes", True):
        for default in defaults:
            more = loader._load_single_config(default, repo).config
            try:
                if not _move_new(more, config):
                    config.merge_with(more)
            except OmegaConfBaseException as error:
                raise ConfigCompositionException(
                    f"In '{default.config_path}': {type(error).__name__} raised while composing config:\n{error}"
                ) from error
    return config


def _move_new(more: Any, config: DictConfig) -> bool:
    """Move what has new keys from one configuration to another; return whether nothing is left to merge."""
    content, merged = more.__dict__["_content"], config.__dict__["_content"]
    if not isinstance(more, DictConfig) or not isinstance(content, dict) or more._is_typed() or more._metadata.flags:
        return False
    for key in [key for key in content if key not in merged]:
        merged[key] = content.pop(key)
        merged[key]._set_parent(config)
    return not content


def _strip_defaults(config: Any) -> None:
    """Remove lists of defaults that are left in stored choices."""
    if isinstance(config, DictConfig) and not (config._is_missing() or config._is_none()):
        if config._get_flag("HYDRA_REMOVE_TOP_LEVEL_DEFAULTS"):
            with flag_override(config, ["readonly", "struct"], False):
                config._set_flag("HYDRA_REMOVE_TOP_LEVEL_DEFAULTS", None)
                config.pop("defaults", None)
        for _, value in config.items_ex(resolve=False):
            _strip_defaults(value)


def _merge_once() -> None:
    """Keep the files that choices stand for, and what these are merged to, as long as none of them changes."""
    create = defaults_list.create_defaults_list
    kept: dict[tuple[Any, ...], _Kept] = {}
    of_defaults: dict[int, _Kept] = {}

    def create_defaults_list(
        repo: Any, config_name: str | None, overrides_list: Sequence[Any], prepend_hydra: bool, skip_missing: bool
    ) -> DefaultsList:
        given = [override for override in overrides_list if not override.is_sweep_override()]
        choosing = {
            id(override)
            for override in given
            if not isinstance(override.value(), dict) and repo.group_exists(override.key_or_group)
        }
        lines = tuple(override.input_line for override in given if id(override) in choosing)
        sources = repo.get_sources()
        key = (config_name, prepend_hydra, lines, _places(sources))
        known = kept.get((*key, None)) or kept.get((*key, skip_missing))
        if known is None or not _same(known.states, _states(sources, known.paths)):
            asked = _Asked(repo)
            listed = create(asked, config_name, list(overrides_list), prepend_hydra, skip_missing)  # type: ignore[arg-type]
            known = _Kept(listed, asked.paths, _states(sources, asked.paths))
            kept[*key, skip_missing if _leaves_open(listed.defaults_tree) else None] = known
            of_defaults[id(listed.defaults)] = known
        return dataclasses.replace(
            known.listed, config_overrides=[override for override in given if id(override) not in choosing]
        )

    def compose_from_list(self: ConfigLoaderImpl, defaults: Any, repo: Any) -> DictConfig:
        known = of_defaults.get(id(defaults))
        if known is None or known.listed.defaults is not defaults:
            return _merge(self, defaults, repo)
        if known.merged is None:
            known.merged = pickle.dumps(_merge(self, defaults, repo))
        result: DictConfig = pickle.loads(known.merged)  # noqa: S301 - this process wrote it
        return result

    compose_mode = Hydra.get_mode

    def get_mode(self: Hydra, config_name: str | None, overrides: list[str]) -> Any:
        """Return `hydra.mode`; compose all values for it only where a file or a word may set it."""
        if any("hydra.mode" in word or word.lstrip("+").startswith("hydra=") for word in overrides):
            return compose_mode(self, config_name, overrides)
        loader = self.config_loader
        assert isinstance(loader, ConfigLoaderImpl)  # noqa: S101 - Hydra has no other
        try:
            parsed, repo = loader._parse_overrides_and_create_caching_repo(config_name, overrides)
            listed = create_defaults_list(repo, config_name, parsed, prepend_hydra=True, skip_missing=True)
            known = of_defaults[id(listed.defaults)]
            if known.sets_mode is None:
                known.sets_mode = compose_from_list(loader, listed.defaults, repo).hydra.mode is not None
        except Exception:  # as Hydra's own: the composition that follows raises it again
            return None
        return compose_mode(self, config_name, overrides) if known.sets_mode else None

    Hydra.get_mode = get_mode  # type: ignore[method-assign]
    config_loader_impl.create_defaults_list = create_defaults_list  # type: ignore[attr-defined]
    ConfigLoaderImpl._compose_config_from_defaults_list = compose_from_list  # type: ignore[method-assign]
