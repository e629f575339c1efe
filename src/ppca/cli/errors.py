"""Report errors of commands: one message on standard error with the cause and the next step, and a non-zero exit
code."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.text import Text

from ..jobs.checks import SpecError
from ..owner.errors import BadColumns, BadValue, NoRows, OwnerError, UnreadableData
from ..runtime import ProgramError, ServersFailed
from .terminal import Terminal

SHOWN_LENGTH = 60
MAX_LINE, MAX_LINES = 8000, 200
"""Maximum length of a line of an error, and maximum number of lines: text of others cannot fill the terminal."""

FIELDS = {
    "analysis.components": "-k",
    "analysis.model_owners": "--model",
    "data.form": "--wide",
    "data.owners": "--owner",
    "data.scales": "--model",
    "receivers": "--receiver",
    "name": "NAME",
}
"""Options that are not called like their field of a job."""

REMEDIES = {
    "columns": "--columns {common} chooses columns",
    "dask_ca": "--dask-ca, --dask-cert and --dask-key name the files",
    "decimal": "--decimal {decimal} reads decimal {mark}",
    "drop": "--drop {columns} leaves {them} out",
    "encoding": "--encoding names another encoding, such as --encoding latin-1 or --encoding utf-16",
    "fold_case": "--fold-case lets ids differ in case",
    "thousands": "--thousands {separator} reads separators of thousands",
    "min_rows": "--min-rows sets the minimum",
    "minimum": "--minimum lowers the limit, if fewer rows may be analysed",
    "id": "--id may be given once for each owner, in the order of the files",
    "na_values": "--na-values {values} counts {texts} as missing (see --missing)",
    "missing": "--missing drop leaves out rows with a missing value{means}",
}
"""Hints on options for errors about owners' data."""


@contextmanager
def error_messages(offered: Container[str] = (), advice: str = "") -> Iterator[None]:
    """Turn errors that a user can act on into a message; anything else is a bug and keeps its traceback.

    offered: options that may be advised. advice: a note below errors about owners' data.

    ValueError covers parameters, owners' data (`OwnerError`), refused inputs and inconsistent shares; OSError files.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of our output has left: nothing to tell
        raise typer.Exit(0) from None
    except (ValueError, ServersFailed, ProgramError, OSError) as error:
        complain(in_words(error, offered))
        if advice and isinstance(error, BadValue | BadColumns | NoRows | UnreadableData):
            note(advice)
        raise typer.Exit(1) from None


def in_words(error: Exception, offered: Container[str]) -> str:
    """Return the message with the options of this command instead of parameters."""
    if isinstance(error, SpecError):
        value = "" if error.value is None else f" {_shown(error.value)}"
        return f"{option_of(error.field)}{value}: {error.cause}."
    if not isinstance(error, OwnerError):
        return str(error)
    columns = error.columns if isinstance(error, BadValue | BadColumns) else ()
    values = error.values if isinstance(error, BadValue) else ()
    words = {
        "columns": typed(columns),
        "common": typed(getattr(error, "common", ()) or ("a", "b", "c")),
        "them": "the column" if len(columns) == 1 else "these columns",
        "values": typed(values),
        "decimal": "." if "decimal point" in str(error) else ",",
        "mark": "points" if "decimal point" in str(error) else "commas",
        "separator": shlex.quote(getattr(error, "separator", "")),
        "means": ", --missing mean counts it as the mean of its column" if "components" in offered else "",
        "texts": "this text" if len(values) == 1 else "these texts",
    }
    found = [REMEDIES[name].format(**words) for name in error.options if name in offered]
    return f"{error} {'; '.join(found)}." if found else str(error)


def option_of(field: str) -> str:
    """The option that sets a field of a job."""
    for start, option in FIELDS.items():
        if field == start or field.startswith(f"{start}."):
            return option
    return f"--{field.rpartition('.')[2].replace('_', '-')}"


def _shown(value: object) -> str:
    return printable(value if isinstance(value, str) else repr(value))


def typed(names: Sequence[str]) -> str:
    """Names as a user types them after an option: a,b,c, quoted for the option and for the shell if need be."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return shlex.quote(line.getvalue())


def complain(message: str) -> None:
    """Print why a command failed. Parts of the message may be others' text."""
    message = "\n".join(printable(line, MAX_LINE) for line in message.split("\n")[:MAX_LINES])
    Terminal(stderr=True).print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True, highlight=False)


def note(message: str, *, quiet: bool = False) -> None:
    """Print a note on standard error."""
    line = Text.assemble(("note: ", "yellow"), printable(message, MAX_LINE))
    Terminal(stderr=True, quiet=quiet).print(line, soft_wrap=True, highlight=False)


def printable(text: str, length: int = SHOWN_LENGTH) -> str:
    """A name out of somebody's file, safe for the terminal: no control characters, not too long."""
    clean = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return clean if len(clean) <= length else clean[: length - 1] + "…"
