"""Where a comparison of runs goes."""

import os
from collections.abc import Sequence
from pathlib import Path


def comparison_folder(run_dirs: Sequence[Path]) -> Path:
    """Return the deepest folder that holds all the runs; the current one where that cannot be written."""
    common = Path(os.path.commonpath([run_dir.resolve().parent for run_dir in run_dirs]))
    # a file of ours has no place in the root, even where it could be written
    fits = common != Path(common.anchor) and os.access(common, os.W_OK | os.X_OK)
    return common if fits else Path.cwd()
