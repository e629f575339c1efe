"""The `Data` of row owners whose tables are all in this process."""

from __future__ import annotations

from typing import Any

from ..jobs.spec import USES_SCALES, Data, local_owners, numbered


def row_data(form: str, tables: int, width: int, member: str | None = None, **more: Any) -> Data:
    """Return the data of the owners of this number of tables. member: the member of a federation that acts for all of
    them."""
    if member is None:
        return Data(form=form, owners=local_owners(tables), columns=numbered(width), **more)
    more |= {} if form in USES_SCALES else {"tables": (width,) * tables}
    return Data(form=form, owners=(member,), columns=numbered(width), **more)
