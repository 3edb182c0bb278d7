"""Tasks' data, loaded with a word where that takes long."""

import logging
import threading

from evorun.tasks.base import LoadedTask, TaskConfig

_log = logging.getLogger(__name__)

_LONG_S = 10.0


def load_task(config: TaskConfig) -> LoadedTask:
    """Load a task's data; after ten seconds say so: a download goes on, or a plug-in's loop never ends.

    Raises what `config.load` does.
    """
    line = "loading task=%s takes more than %d s: a download, or code of the task's own (load)"
    timer = threading.Timer(_LONG_S, _log.warning, (line, config.name, _LONG_S))
    timer.daemon = True
    timer.start()
    try:
        return config.load()
    finally:
        timer.cancel()
