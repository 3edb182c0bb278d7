"""`evorun export`: runs in the formats of other programs and of papers."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.cli.options import split_runs, take_flag
from evorun.errors import ConfigError, RunDirectoryError
from evorun.exports.records_csv import names_of
from evorun.runs.directory import load_manifest
from evorun.runs.files import replace_atomically
from evorun.runs.folders import run_folders
from evorun.runs.formats import counted
from evorun.runs.outputs import refuse_folder_of_records, refuse_replacing
from evorun.runs.paths import display
from evorun.runs.records import write_atomically
from evorun.runs.terminal import Terminal


class _Format(NamedTuple):
    write: Callable[[Sequence[Path], Path, Mapping[str, str]], str]
    """Writes runs to a place, with the format's own options; returns what to tell the user beside the place."""
    suffix: str
    """Of the file; empty for a folder."""
    single: bool = False
    """True where it takes one run."""
    options: Sequence[str] = ()
    required: Sequence[str] = ()


def export_runs(arguments: Sequence[str], console: Terminal) -> int:
    """Write runs in a format and return the exit code. Raises ConfigError for a wrong command line, and DataError."""
    if "format=verifiers" in arguments:
        from evorun.cli.export_task import export_task

        return export_task(arguments, console)
    keys = {"format", "output", "overwrite", *(key for kind in _FORMATS.values() for key in kind.options)}
    given, options = split_runs("export", arguments, sorted(keys), ("format", "output"))
    name, output = options.pop("format"), Path(options.pop("output"))
    if name not in _FORMATS:
        raise ConfigError(f"format={name}: unknown format; choose one of {', '.join([*_FORMATS, 'verifiers'])}")
    kind, overwrite = _FORMATS[name], take_flag(options, "overwrite")
    for key in options:
        if key not in kind.options:
            raise ConfigError(f"{key}: has no effect with format={name}; leave it out")
    for key in kind.required:
        if not options.get(key):
            raise ConfigError(f"{key}: expected a value with format={name}, got none")
    if output.suffix != kind.suffix:
        what = f"the name of a {kind.suffix} file" if kind.suffix else "a folder"
        raise ConfigError(f"output: expected {what} with format={name}, got {output}")
    folders = run_folders(given)
    if kind.single and len(folders) != 1:
        raise ConfigError(f"format={name}: expected one run, got {len(folders)}; export each into a file of its own")
    refuse_folder_of_records("output", output if kind.suffix == "" else output.parent)
    refuse_replacing("output", output, overwrite=overwrite or (not kind.suffix and output.is_dir()))
    try:
        (output.parent if kind.suffix else output).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"cannot make the folder of {output}: {error.strerror}") from error
    said = kind.write(folders, output, {**options, "overwrite": str(overwrite)})
    console.print(f"written: {display(output)}{said}", soft_wrap=True)
    return 0


def _archive(folders: Sequence[Path], output: Path, options: Mapping[str, str]) -> str:
    from evorun.exports.archive import write_archive
    from evorun.exports.signing import NAMESPACE, require_key, sign_file, signature_of

    key = Path(options["sign"]).expanduser() if options.get("sign") else None
    if key is not None:
        require_key(key)
        refuse_replacing("output", signature_of(output), overwrite=options["overwrite"] == "True")
    paths = options.get("paths", "refuse")
    if paths not in ("refuse", "keep"):
        raise ConfigError(f"paths: expected keep or nothing, got {paths}")
    try:
        with replace_atomically(output) as file:
            files = write_archive(names_of(folders), file, keep_paths=paths == "keep")
    except OSError as error:
        raise RunDirectoryError(f"cannot write {display(output)}: {error.strerror}") from error
    with output.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    runs = counted(len(folders), "run")
    said = f" ({files} files of {runs}; sha256 {digest}); its README.md has the commands of a replay"
    if key is None:
        return said
    signature = sign_file(output, key)
    check = f"ssh-keygen -Y check-novalidate -n {NAMESPACE} -s {signature.name} < {output.name}"
    return f"{said}\nsigned: {display(signature)}; to check it: {check}"


def _csv(folders: Sequence[Path], output: Path, options: Mapping[str, str]) -> str:
    from evorun.exports.records_csv import tables_of_records

    tables = tables_of_records(names_of(folders))
    for name in tables:
        refuse_replacing("output", output / name, overwrite=options["overwrite"] == "True")
    for name, content in tables.items():
        write_atomically(output / name, content)
    return f" ({', '.join(tables)})"


def _eval_results(folders: Sequence[Path], output: Path, options: Mapping[str, str]) -> str:
    from evorun.exports.eval_results import Benchmark, eval_results
    from evorun.reports.overview import load_outcome

    benchmark = Benchmark(options["dataset"], options["task_id"], options.get("source"))
    write_atomically(output, eval_results(load_outcome(folders[0]), benchmark))
    return ", for .eval_results/ in the model's repository"


def _inspect(folders: Sequence[Path], output: Path, options: Mapping[str, str]) -> str:
    from evorun.exports.inspect_log import require_inspect, write_inspect_log
    from evorun.reports.overview import load_outcome

    require_inspect()
    write_inspect_log(load_outcome(folders[0]), output)
    return f"; to look at it: inspect view --log-dir {display(output.parent) or '.'}"


def _latex(folders: Sequence[Path], output: Path, options: Mapping[str, str]) -> str:
    from evorun.exports.latex import comparison_tables
    from evorun.reports.comparison import compare, read_names

    names = read_names([word for word in options.get("names", "").split(";") if word])
    compared = compare(folders, options.get("against"), options.get("score"), names)
    chosen = [[word.strip() for word in options.get(key, "").split(",") if word] for key in ("tables", "columns")]
    write_atomically(output, comparison_tables(compared, *chosen).encode("utf-8", "replace"))
    return r"; needs \usepackage{booktabs} and \usepackage[T1]{fontenc}"


def _model(folders: Sequence[Path], output: Path, options: Mapping[str, str]) -> str:
    from evorun.models.config import ModelConfig
    from evorun.models.transformers.merging import write_merged
    from evorun.runner.stages import ADAPTER, MODEL, STUDENT
    from evorun.runner.typed import typed

    manifest = load_manifest(folders[0])
    # A run with a student uses the adapter that its stages have trained.
    trained = Path(manifest.stages[STUDENT].folder) if STUDENT in manifest.stages else folders[0]
    if (trained / MODEL).is_dir():
        raise ConfigError(f"format=model: {display(trained / MODEL)} is a whole model already; it takes no export")
    if not (trained / ADAPTER).is_dir():
        raise ConfigError(f"format=model: expected a run that trained an adapter, {display(trained)} has none")
    if any(output.iterdir()):
        raise ConfigError(f"output: expected a new or empty folder with format=model, got {output}")
    model = typed(ModelConfig, manifest.config["model"], "model")
    write_merged(model, trained / ADAPTER, output)
    embedded = " model.embedded=false" if model.embedded else ""
    return f"; to run or train it: model={model.name} model.id={display(output)}{embedded}"


_FORMATS = {
    "archive": _Format(_archive, ".zip", options=("paths", "sign")),
    "csv": _Format(_csv, ""),
    "hf_eval_results": _Format(
        _eval_results, ".yaml", single=True, options=("dataset", "task_id", "source"), required=("dataset", "task_id")
    ),
    "inspect": _Format(_inspect, ".eval", single=True),
    "latex": _Format(_latex, ".tex", options=("against", "score", "names", "tables", "columns")),
    "model": _Format(_model, "", single=True),
}
