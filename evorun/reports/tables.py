"""Tables in a terminal whose cells may hold foreign texts, which must not be read as markup."""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def new_table(title: str, *columns: str, left: Collection[int] = (0,)) -> "Table":
    """Return an empty table; columns in `left` hold words, the others figures."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        # Text, not str: a stratum's name must not be read as console markup.
        table.add_column(Text(column), justify="left" if index in left else "right")
    return table


def add_row(table: "Table", *cells: str) -> None:
    """Add a row of cells that are shown as they are."""
    from rich.text import Text

    table.add_row(*(Text(cell) for cell in cells))
