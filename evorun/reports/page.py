"""The common parts of all pages: templates that escape what they print, our own files, downloads, exported files."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evorun.errors import RunDirectoryError
from evorun.reports import text
from evorun.reports.drawing import Drawing
from evorun.reports.facts import is_remark
from evorun.reports.tables import Table, make_data_table
from evorun.reports.text import file_stem
from evorun.runs.folders import CAPTIONS
from evorun.runs.outputs import refuse_replacing
from evorun.runs.printable import printable
from evorun.runs.records import write_atomically

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup


def render(template: str, context: Mapping[str, Any], package: str = "evorun.reports") -> str:
    """Render one of our templates. Whatever it prints is escaped and made printable, unless it is `markup`.

    package: where the template lies; what it extends or imports may lie here, too.
    """
    return _environment(package).get_template(template).render(context)


@cache
def _environment(package: str) -> "jinja2.Environment":
    """Return the environment of a package's templates, which compiles each of them once."""
    import jinja2

    # StrictUndefined: a template that names what its context lacks must fail, not print nothing
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package, ""), jinja2.FunctionLoader(own_file)]),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=text.count,
        number=text.number,
        number_interval=text.number_interval,
        words=text.words,
        name_score=text.name_score,
        sentence=text.sentence,
        heading=text.heading,
        trusted=markup,
        svg_link=svg_link,
        csv_link=csv_link,
    )
    environment.tests["remark"] = is_remark
    return environment


def write_page(target: Path, page: str) -> Path:
    """Write a page, atomically replacing an earlier one, and return its path. Raises RunDirectoryError."""
    # lone surrogates, which a model's text may hold, have no encoding
    write_atomically(target, page.encode("utf-8", "replace"))
    return target


def markup(html: str) -> "Markup":
    """Exempt from escaping: our own files, SVG from plots, and JSON from `script_json`; never a run's text as it is."""
    from markupsafe import Markup

    return Markup(html)  # noqa: S704


def download(name: str, media: str, content: str) -> "Markup":
    """Return a link that saves `content` as a file. The link contains it, so that the page loads nothing."""
    from markupsafe import Markup

    data = base64.b64encode(content.encode("utf-8", "replace")).decode("ascii")
    link = Markup('<a class="download" download="{}" href="data:{};base64,{}">{}</a>')
    return link.format(name, media, data, name.rpartition(".")[2].upper())


_linked: ContextVar[dict[str, Drawing] | None] = ContextVar("linked", default=None)


@contextmanager
def linked_drawings() -> Iterator[dict[str, Drawing]]:
    """Collect, by name, the drawings that pages offer while they are rendered: with their captions."""
    found: dict[str, Drawing] = {}
    token = _linked.set(found)
    try:
        yield found
    finally:
        _linked.reset(token)


def svg_link(drawing: Drawing) -> "Markup":
    """Return a link that saves a drawing as SVG."""
    if (linked := _linked.get()) is not None:
        linked[drawing.name] = drawing
    return download(f"{text.file_stem(drawing.name)}.svg", "image/svg+xml", drawing.svg)


def csv_link(table: Table) -> "Markup":
    """Return a link that saves a table as CSV."""
    return download(f"{text.file_stem(table.name)}.csv", "text/csv", table.csv())


def own_file(name: str, package: str = "evorun.reports") -> str:
    """Return the text of a file of one of our packages."""
    return files(package).joinpath(name).read_text("utf-8")


def content_hash(script: str) -> str:
    """Return the source expression by which a content security policy admits a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _finalize(value: object) -> object:
    """Make what the template prints harmless to the layout; escaping comes after this."""
    return value if hasattr(value, "__html__") or not isinstance(value, str) else printable(value)


def export(
    folder: Path, drawings: Sequence[Drawing], tables: Iterable[Table], *, overwrite: bool = False
) -> list[Path]:
    """Write each drawing as NAME.svg, NAME.pdf and NAME.png, each table as NAME.csv, and return their paths.

    Captions of drawings are a table of their own, too, since drawings of a given width have none. A missing folder is
    made. Raises ConfigError for an existing file unless it may be overwritten, and RunDirectoryError for one that
    cannot be written; if possible, before the first is written.
    """
    contents: dict[str, bytes] = {}
    captions = [(drawing.name, drawing.caption) for drawing in drawings if drawing.caption]
    if captions:
        tables = [*tables, make_data_table(CAPTIONS, ("figure", "caption"), captions)]
    for drawing in drawings:
        stem = file_stem(drawing.name)
        contents[f"{stem}.svg"] = drawing.svg.encode("utf-8", "replace")
        contents[f"{stem}.pdf"] = drawing.pdf()
        contents[f"{stem}.png"] = drawing.png()
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
