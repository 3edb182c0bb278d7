"""Names of the folders that runs write to: stable for a sweep's jobs, free for anything else."""

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path

from omegaconf import OmegaConf

LONGEST = 160
"""Characters of a job's name; file systems allow 255 bytes, and method and task stand in front."""

_LONGEST_VALUE = 40

_PLAIN = re.compile(rf"[a-z0-9_.]+=[A-Za-z0-9.]{{1,{_LONGEST_VALUE}}}")


def job_name(overrides: Sequence[str]) -> str:
    """Return a stable folder name for a sweep's job: what it overrides, without its method and task.

    Two jobs share a name only when they override the same (`evorun.` and `hydra` keys aside). Whatever had to be
    rewritten or cut short is told apart by a hash over all overrides at the end. A plain name can be read back: its
    values hold neither `-` nor `_`, and it ends in `-VALUE` where another ends in `_HASH`.
    """
    told = sorted(override.lstrip("+") for override in overrides if _is_told(override))
    name = "_".join(_part(override) for override in told)
    if all(_PLAIN.fullmatch(override) for override in told) and len(name) <= LONGEST:
        return name or "run"
    digest = hashlib.sha256("\0".join(told).encode()).hexdigest()[:8]
    return f"{name[: LONGEST - len(digest) - 1]}_{digest}"


def _is_told(override: str) -> bool:
    key = override.lstrip("+").partition("=")[0]
    return key not in ("method", "task") and not key.startswith(("evorun.", "hydra.", "hydra/"))


def _part(override: str) -> str:
    key, _, value = override.partition("=")
    shown = re.sub(r"[^A-Za-z0-9.-]+", "-", value).strip("-")[:_LONGEST_VALUE]
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '.', key).strip('.')}-{shown}"


@cache
def free_folder(path: str) -> str:
    """Create and return the folder, or its first free neighbour `path`_1, `path`_2, ...; once in a process."""
    for number in count():
        folder = Path(path if number == 0 else f"{path}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:  # Hydra, making it in its turn, says what is wrong
            pass
        return str(folder)
    raise AssertionError("count() does not end")


def register_resolvers() -> None:
    """Tell OmegaConf of the functions that `conf/config.yaml` calls."""
    OmegaConf.register_new_resolver("evorun_job", job_name, replace=True)
    # cached with the configuration: a SLURM job gets the folder that was chosen when the sweep was submitted
    OmegaConf.register_new_resolver("evorun_free", free_folder, use_cache=True, replace=True)
