"""Shell completion: verbs and their options, config groups with their choices, and keys with their present values.

`evorun -sc install=bash` prints Hydra's shell function, which then asks `evorun -sc query=bash`. Hydra knows no verbs,
no plug-ins and no choices in subfolders (`experiment=espl/tiny`), so the answer comes from here.
"""

import os
import re
from collections.abc import Iterator, Sequence

from evorun.cli.groups import RUN_GROUPS, SETTINGS, choices, config_folder
from evorun.cli.help import GROUPS
from evorun.cli.usage import USAGES

QUERIES = {"query=bash": " ", "query=zsh": " ", "query=fish": "\n"}
"""Queries of the shells' functions, with the separator that each expects between two choices."""

FLAGS = ("-m", "--cfg", "--config-dir", "--help", "--version")
HYDRA_KEYS = ("hydra.run.dir=", "hydra.sweep.dir=")
"""Of those that Hydra knows, the ones that evorun's pages name."""
TOP_KEYS = (*(f"{group}." for group in (*RUN_GROUPS, *SETTINGS)), "seed=", "study=")
"""Beginnings of the keys of runs, known without composing one."""


def print_choices(query: str) -> None:
    """Print the choices for the word at the end of the line in `COMP_LINE`."""
    print(QUERIES[query].join(complete(os.environ.get("COMP_LINE", ""))))


def complete(line: str) -> list[str]:
    """Return what the last word of a command line may become, in alphabetical order.

    Nothing for a word that only the user or the file system knows: the shell then offers files.
    """
    _, *words = line.split() or [""]
    word = words.pop() if words and not line[-1].isspace() else ""
    offers = _offer(words, word)
    return sorted({offer for offer in offers if offer.startswith(word) and not re.search(r"\s", offer)})


def _offer(words: Sequence[str], word: str) -> Iterator[str]:
    verb = USAGES.get(words[0]) if words else None
    options = [] if verb is None else list(_options(verb.synopsis))
    key, equals, value = word.partition("=")
    group = key.lstrip("+~")
    sign = key.removesuffix(group)
    if equals and group in GROUPS and (verb is None or f"{group}=" in options):
        earlier = value[: value.rfind(",") + 1]  # of a sweep
        yield from (f"{key}={earlier}{choice}" for choice in choices(group))
        return
    yield from options
    if verb is None:
        yield from (() if words else USAGES)
        yield from (*FLAGS, *(f"{sign}{offer}" for offer in (*(f"{group}=" for group in GROUPS), *HYDRA_KEYS)))
    if verb is None or "KEY=VALUE" in verb.synopsis:
        if not re.search(r"[.=]", group + equals):
            yield from (f"{sign}{key}" for key in TOP_KEYS)
            return
        chosen = [given for given in words if re.fullmatch(r"[+~]*[\w/]+=[^,]*", given)]
        yield from (f"{sign}{key}" for key in _list_keys(chosen, f"{group}{equals}{value}"))


def _list_keys(chosen: Sequence[str], word: str) -> list[str]:
    """Return what a key, or its value, may become under the choices of a command line."""
    # here: they take longer to import than all else that a shell waits for
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from hydra.plugins.completion_plugin import CompletionPlugin
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from evorun.cli.compose import register

    register(chosen)
    try:
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            config = compose("config", overrides=list(chosen))
        OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException):  # words that compose nothing
        return []
    return CompletionPlugin._get_matches(config, word)


def _options(synopsis: str) -> Iterator[str]:
    """Yield the options of a verb and their values, as its synopsis writes them: `--trust`, `kind=laft|dpft`."""
    for option, values in re.findall(r"(--[\w-]+=?|\b[a-z_.]+=)([a-z_]+(?:\|[a-z_]+)*)?", synopsis):
        yield from (f"{option}{value}" for value in values.split("|"))
    for values in re.findall(r"[\[ ]([a-z]+(?:\|[a-z]+)+)", synopsis):
        yield from values.split("|")
