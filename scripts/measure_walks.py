"""Follow values of a run through the code: which files hand them on, and how often the way leads back up.

    python scripts/measure_walks.py [TREE]

Runs one simulated problem in the tree (default: this repository) under a profiler that looks at the arguments of every
call within evorun for a marked value: the temperature of a call, `budget.calls`, the text of a response. A *climb* is a
move to a file of a higher room than the one before.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

TREE = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
ROOMS = (
    "ratings",
    "models",
    "simulation",
    "sandbox",
    "runs",
    "tasks",
    "traces",
    "training",
    "rollouts",
    "methods",
    "reports",
)
"""Ground floor first; what is not named here (the runner, the command line) stands above."""
TEMPERATURE, CALLS, TEXT = 0.612345, 397, "Write down what is given"
RUN = (
    "method=duel_evolve",
    "task=mathbench",
    "task.source=sample",
    "task.limit=1",
    "engine=simulated",
    "evorun.progress=off",
)
SMALL = ("method.generations=2", f"method.temperature={TEMPERATURE}", f"budget.calls={CALLS}")
DEPTH = 9


def holds(value: Any, marked: object, depth: int = DEPTH) -> bool:
    """Return whether the marked value is in this one, its fields or its items."""
    if isinstance(value, str | int | float | bool) or value is None:
        return (
            (marked in value)
            if isinstance(marked, str) and isinstance(value, str)
            else value == marked and type(value) is type(marked)
        )
    if depth == 0:
        return False
    if isinstance(value, Mapping):
        return any(holds(item, marked, depth - 1) for item in list(value.values())[:50])
    if isinstance(value, list | tuple):
        return any(holds(item, marked, depth - 1) for item in value[:50])
    if type(value).__module__.startswith("evorun"):
        names = getattr(type(value), "__struct_fields__", None) or list(getattr(value, "__dict__", ()))
        return any(holds(getattr(value, name, None), marked, depth - 1) for name in names if not name.startswith("_"))
    return False


class Walk:
    """The files that one value has come through, in order."""

    def __init__(self, marked: object) -> None:
        self.marked = marked
        self.files: list[str] = []

    def enter(self, frame: FrameType, file: str) -> None:
        """Note the file when a call's arguments hold the value."""
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        handed = [frame.f_locals.get(name) for name in names if name not in ("self", "cls")]
        if (not self.files or self.files[-1] != file) and any(holds(argument, self.marked) for argument in handed):
            self.files.append(file)

    def arrows(self) -> set[tuple[str, str]]:
        """Return the distinct moves from one file to another."""
        return set(zip(self.files, self.files[1:], strict=False))

    def climbs(self) -> int:
        """Return how many of the arrows lead to a file of a higher room."""
        return sum(floor(after) > floor(before) for before, after in self.arrows())


def floor(file: str) -> int:
    """Return the number of a file's room, the ground floor's being 0."""
    room = Path(file).parts[0]
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def main() -> None:
    """Print, for each value, how many files it comes through and how often it climbs."""
    sys.path.insert(0, str(TREE))
    walks = {"a call's temperature": Walk(TEMPERATURE), "budget.calls": Walk(CALLS), "a response's text": Walk(TEXT)}
    package = str(TREE / "evorun") + "/"

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            for walk in walks.values():
                walk.enter(frame, frame.f_code.co_filename[len(package) :])

    from evorun.cli import main as evorun

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(profile)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            evorun([*RUN, *SMALL, f"hydra.run.dir={folder}/run"])
        sys.setprofile(None)
    for name, walk in walks.items():
        print(f"{name:22} files {len(set(walk.files)):3}  arrows {len(walk.arrows()):4}  climbs {walk.climbs():4}")
        print("   ", " ".join(sorted(set(walk.files))))


if __name__ == "__main__":
    main()
