"""`evorun export task=NAME format=verifiers`: a task, rather than runs, for programs of others."""

import keyword
from collections.abc import Sequence
from pathlib import Path

from evorun import __version__
from evorun.cli.options import add_option, take_flag
from evorun.cli.task_grading import TaskGrading
from evorun.errors import ConfigError, RunDirectoryError
from evorun.exports.verifiers_package import package_files
from evorun.runs.formats import counted
from evorun.runs.outputs import refuse_folder_of_records, refuse_replacing
from evorun.runs.paths import display
from evorun.runs.records import write_atomically
from evorun.runs.terminal import Terminal

FORMAT = "format=verifiers"
_KEYS = ("task", "sandbox")


def export_task(arguments: Sequence[str], console: Terminal) -> int:
    """Write the package and return the exit code.

    Raises ConfigError for a wrong command line or a task that cannot be graded so, and what loading the task raises.
    """
    options = dict[str, str]()
    for argument in arguments:
        if "=" not in argument:
            raise ConfigError(f"{FORMAT}: expected task=NAME and its settings in place of runs, got {argument}")
        add_option(options, argument)
    options.pop("format")
    overwrite, output = take_flag(options, "overwrite"), Path(options.pop("output", ""))
    for key in options:
        if key.partition(".")[0] not in _KEYS:
            raise ConfigError(f"{key}: has no effect with {FORMAT}; leave it out")
    if not options.get("task"):
        raise ConfigError(f"task: expected a value with {FORMAT}, got none")
    name = output.name
    if not (name.isascii() and name.isidentifier() and name.islower()) or keyword.iskeyword(name):
        raise ConfigError(
            f"output: expected a folder whose name is that of a Python package with {FORMAT}, as environments/my_task, "
            f"got {output}"
        )
    settings = [f"{key}={value}" for key, value in options.items()]
    grading = TaskGrading(*settings)
    refuse_folder_of_records("output", output)
    files = package_files(name, settings, __version__)
    for file in files:
        refuse_replacing("output", output / file, overwrite=overwrite)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"cannot make the folder {output}: {error.strerror}") from error
    for file, text in files.items():
        write_atomically(output / file, text.encode())
    problems = counted(len(grading.prompts()), "problem")
    said = f"{problems}: {grading.description}; next: pip install {display(output)}, id {name}"
    console.print(f"written: {display(output)} ({said})", soft_wrap=True)
    return 0
