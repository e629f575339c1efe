"""New rows whose columns are spread over several owners' files: the options of `ppca transform` and `ppca detect` for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..owner.alignment.arrangement import Alignment

Rows = Annotated[
    list[Path],
    typer.Argument(help="table with the new rows: .csv, .parquet, .arrow, .npy, .npz; of a vertical fit one per owner"),
]
IdColumn = Annotated[str | None, typer.Option("--id", help="vertical: the column that names the individuals")]
Way = Annotated[str, typer.Option("--alignment", help="vertical: psi, aligned or namespace")]
Namespace = Annotated[int | None, typer.Option("--namespace", help="vertical: number of ids of alignment namespace")]
FoldCase = Annotated[bool, typer.Option("--fold-case", help="vertical: ids may differ in case")]
Receiver = Annotated[Path | None, typer.Option("--receiver", help="vertical: the owner (file) that gets the result")]


def joint_options(
    rows: Sequence[Path],
    id_column: str | None,
    alignment: str,
    namespace: int | None,
    fold_case: bool,
    receiver: Path | None,
    revealed: bool,
) -> dict[str, Any] | None:
    """What `SharedModel.transform_columns` needs to know; None if there is one table with all columns."""
    if len(rows) == 1 and id_column is None:
        return None
    if revealed:
        raise ValueError("--revealed needs all columns in one table: rows of several owners are only joined on shares.")
    if id_column is None and alignment != "aligned":
        raise ValueError("several tables are joined by id: name its column with --id, or give --alignment aligned.")
    if receiver is not None and receiver not in rows:
        raise ValueError(f"--receiver {receiver} is none of the owners' files.")
    return {
        "id": id_column,
        "alignment": Alignment(alignment, namespace, 1, fold_case),
        "receiver": 0 if receiver is None else list(rows).index(receiver),
    }
