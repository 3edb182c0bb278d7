"""Names of run directories: stable for a sweep's jobs, otherwise new ones."""

import contextlib
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path

from omegaconf import OmegaConf

from evorun.runs.directory import LOCK
from evorun.runs.sweeps import SWEEP_MANIFEST

# Characters of a job's name: file systems allow 255 bytes, and method and task come before it.
LONGEST = 160

_LONGEST_VALUE = 40

SWEEP = "multirun.yaml"  # Hydra's, in a sweep's folder

_PLAIN = re.compile(rf"[a-z0-9_.]+=[A-Za-z0-9.]{{1,{_LONGEST_VALUE}}}")


def job_name(overrides: Sequence[str]) -> str:
    """Return a stable folder name for a sweep's job: its overrides, without its method and task.

    Two jobs share a name only if their overrides are equal (`evorun.`, `hydra` and `study` keys aside).
    """
    named, parts = [], []
    for override in sorted(override.lstrip("+") for override in overrides):
        key, _, value = override.partition("=")
        if key in ("method", "task", "study") or key.startswith(("evorun.", "hydra.", "hydra/")):
            continue
        named.append(override)
        shown = re.sub(r"[^A-Za-z0-9.-]+", "-", value).strip("-")[:_LONGEST_VALUE]
        parts.append(f"{re.sub(r'[^A-Za-z0-9_.]+', '.', key).strip('.')}-{shown}")
    name = "_".join(parts)
    # A plain name can be read back: its values contain neither `-` nor `_`, and it ends in `-VALUE`. A rewritten or
    # cut name ends in `_HASH` over all overrides, so neither kind can be mistaken for the other.
    if all(_PLAIN.fullmatch(override) for override in named) and len(name) <= LONGEST:
        return name or "run"
    digest = hashlib.sha256("\0".join(named).encode()).hexdigest()[:8]
    return f"{name[: LONGEST - len(digest) - 1]}_{digest}"


@cache
def free_folder(path: str) -> str:
    """Create and return the folder, or the first of `path`_1, `path`_2, ... that does not exist.

    Cached, since Hydra resolves the name several times in a process.
    """
    for number in count():
        folder = Path(path if number == 0 else f"{path}_{number}")
        try:
            folder.mkdir(parents=True)  # creation is the test: two runs in the same second cannot both succeed
        except FileExistsError:
            continue
        except OSError:  # Hydra then fails to create it, too, and says why
            pass
        return str(folder)
    raise AssertionError("count() does not end")


def remove_unused_run_dir(folder: Path) -> None:
    """Remove the folder of a run that could not begin, or of a sweep without a run, unless it has other files.

    Also remove its empty parents within the working directory, where evorun names folders by itself.
    """
    here = Path.cwd()
    with contextlib.suppress(OSError):  # it has other files, or does not exist
        files = {file.name for file in folder.iterdir()}
        if files <= {SWEEP, SWEEP_MANIFEST, LOCK}:
            for name in files:
                (folder / name).unlink()
        for empty in (folder, *folder.parents):
            if empty != here and (empty == folder or here in empty.parents):
                empty.rmdir()


def register_resolvers() -> None:
    """Register with OmegaConf the functions that `conf/config.yaml` calls."""
    OmegaConf.register_new_resolver("evorun_job", job_name, replace=True)
    # Cached with the configuration: a SLURM job gets the folder that was chosen when the sweep was submitted.
    OmegaConf.register_new_resolver("evorun_free", free_folder, use_cache=True, replace=True)
