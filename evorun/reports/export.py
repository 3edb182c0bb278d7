"""The figures and tables of a report as files of their own: SVG and PDF for papers, CSV for other programs."""

from collections.abc import Iterable
from pathlib import Path

from evorun.errors import RunDirectoryError
from evorun.reports.drawing import Drawing
from evorun.reports.tables import Table
from evorun.reports.text import file_stem
from evorun.runs.outputs import refuse_replacing
from evorun.runs.records import write_atomically


def export(
    folder: Path, drawings: Iterable[Drawing], tables: Iterable[Table], *, overwrite: bool = False
) -> list[Path]:
    """Write each drawing as NAME.svg and NAME.pdf and each table as NAME.csv, and return their paths.

    The folder is made where it is missing. Raises ConfigError for a file that is there, unless told to overwrite it,
    and RunDirectoryError when one cannot be written; before the first is written, where that is known.
    """
    contents: dict[str, bytes] = {}
    for drawing in drawings:
        stem = file_stem(drawing.name)
        contents[f"{stem}.svg"] = drawing.svg.encode("utf-8", "replace")
        contents[f"{stem}.pdf"] = drawing.pdf()
    for table in tables:
        contents[f"{file_stem(table.name)}.csv"] = table.csv().encode("utf-8", "replace")
    for name in contents:
        refuse_replacing("--export", folder / name, overwrite=overwrite, how="--overwrite")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"cannot make the folder {folder}: {error.strerror}") from error
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]
