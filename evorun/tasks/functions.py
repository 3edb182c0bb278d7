"""Functions of the user's own, which a setting names: package.module:NAME or FILE.py:NAME."""

import importlib
import importlib.util
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

from evorun.errors import ConfigError, first_line


def import_function(key: str, place: str) -> Any:
    """Return what `place` names. key: the setting, for errors. Raises ConfigError in one line for what fails."""
    module, _, name = place.rpartition(":")
    if not module:
        raise ConfigError(f"{key}: expected package.module:NAME or FILE.py:NAME, got {place}")
    try:
        return getattr(_import(module), name)
    # A module may do anything when it is imported, `sys.exit` included.
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{key}={place}: cannot be imported: {first_line(error)}") from error


def _import(place: str) -> Any:
    """Import a module by its name, or a file by its path."""
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).expanduser().resolve()
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    # Another module of that name stays what it is.
    name = path.stem if loaded is None else f"{path.stem}_{blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
