"""Tables for tests of column owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

ID = "id"


def with_ids(values: Any, names: Sequence[str], ids: Any) -> pa.Table:
    """The columns of an owner, and the ids of its rows in the column `id`."""
    columns = dict(zip(names, np.ascontiguousarray(np.asarray(values).T), strict=True))
    return pa.table({**columns, ID: ids if isinstance(ids, list) else np.asarray(ids)})
