"""What Python offers against what owners' data are refused for: a note below the error, as tracebacks show it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..jobs.checks import SpecError
from ..owner.errors import OwnerError

NAMES = {"components": "n_components"}
"""Parameters that are not called like their field of a job."""

REMEDIES = {
    "columns": "PCA(columns=[...]) chooses columns",
    "dask_ca": "distributed.Client(address, security=distributed.Security(...)) connects with your files",
    "decimal": 'ppca.open_table(path, decimal=",") reads decimal commas',
    "drop": "PCA(columns=[...]) chooses columns",
    "encoding": 'ppca.open_table(path, encoding="latin-1") reads another encoding',
    "fold_case": "Columns(fold_case=True) lets ids differ in case",
    "id": "Columns(id=[...]) names the id column of every owner",
    "minimum": "Columns(minimum=...) lowers the limit, if so few rows may be analysed",
    "na_values": "ppca.open_table(path, na_values=[...]) counts texts as missing",
    "thousands": 'ppca.open_table(path, thousands=",") reads thousands separators',
    "min_rows": "ppca.open_table(data, min_rows=...) sets the minimum",
    "missing": 'ppca.open_table(data, missing="drop") leaves out rows with a missing value, missing="mean" counts it as the mean',
}


@contextmanager
def advised() -> Iterator[None]:
    """Adds to an owner's error what may help, and names parameters as Python does."""
    try:
        yield
    except OwnerError as error:
        for name in error.options:
            error.add_note(REMEDIES[name])
        raise
    except SpecError as error:
        raise renamed(error) from None


def renamed(error: SpecError) -> SpecError:
    """The same error with the parameter of Python that sets the field."""
    name = error.field.rpartition(".")[2]
    return SpecError(NAMES.get(name, name), error.value, error.cause)


def with_advice(error: OwnerError) -> str:
    """The same in one line, for a warning."""
    return ". ".join([str(error).removesuffix("."), *(REMEDIES[name] for name in error.options)]) + "."
