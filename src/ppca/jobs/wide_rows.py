"""The program for owners of rows who together have fewer rows than columns: shared rows, their products, the same analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import dual, wide_entry
from ..algorithms.entry import Joint, joint_mean
from ..algorithms.wide import ENTRIES, WideTable, columns_of_piece
from ..algorithms.wide_entry import Entered, RowSums
from ..protocol import Party, SecretArray, concatenate, stack
from ..protocol.opening import SERVERS, record
from ..servers.failure import Refusal
from ..servers.programs import offered
from ..servers.spool import Spool
from .analysis import Choices
from .kept import drop_sums
from .rows import check_rows
from .uploads import Uploads, forget
from .wide import SCALED_AT_ONCE, analyse_wide, pieces_in, too_large, too_tall

ROWS_TOGETHER = 32
"""An owner's number of rows is rounded up to a multiple of this, and only that is seen."""

ROUNDED = "rounded numbers of rows"
"""What servers see of the sizes of uploads, as the audit calls it."""

Words = NDArray[np.uint64]


@offered
async def fit(
    party: Party, *inputs: SecretArray, table: str, rows_at_least: int | None = None, choices: dict[str, Any]
) -> dict[str, Any]:
    """Joint PCA of uploaded rows: columns one below the other, so many rows in each as the owner has, and rows of zeros.

    Inputs, of one owner after the other: the parts of `RowSums`. rows_at_least: see `rows.fit`.
    """
    chosen = Choices(**choices)
    names = [field.name for field in fields(RowSums)][: 7 if chosen.standardize else 6]
    each = {name: inputs[k :: len(names)] for k, name in enumerate(names)}
    flat = ("count", "root") if chosen.standardize else ("count", "root", "exponent")
    sums = RowSums(**{name: concatenate(parts) if name in flat else stack(parts) for name, parts in each.items()})
    uploads, width = Uploads.of(party, table), len(each["mantissa"][0])
    spools = [spool for _, spool in sorted(uploads.rows.items())]
    if len(spools) != len(sums.count) or any(spool.rows != width for spool in spools):
        raise Refusal("an owner has not uploaded every column of its rows")
    lengths = [spool.width // 2 for spool in spools]
    record(party, ROUNDED, (len(lengths),), SERVERS, "sizes of uploads")
    between = len(lengths) > 1
    owner = np.repeat(np.arange(len(lengths) + between), [*lengths, *([len(lengths)] * between)])
    if refused := too_tall(sum(lengths), width) or too_large(len(owner), width):
        raise Refusal(refused)
    if isinstance(chosen.components, int) and chosen.components > len(owner):
        raise Refusal(f"{chosen.components} components of fewer rows; choose at most as many as there are rows")
    if rows_at_least is not None:
        await check_rows(party, sums.count, rows_at_least)
    if chosen.keep is not None:
        drop_sums(party, chosen.keep)
    with party.stage("covariance"):
        party.progress("covariance", 0.0)
        entered = await wide_entry.enter_rows(sums, width)
        grid = await joint_mean(entered.scales, entered.joint)
    fitted = _standardised if chosen.standardize else _raw
    found = await fitted(party, uploads, sums, entered, grid, owner, chosen)
    await forget(party, table=table)
    return {"fit": party.run, **found}


async def _raw(
    party: Party,
    uploads: Uploads,
    sums: RowSums,
    entered: Entered,
    grid: SecretArray,
    owner: NDArray[np.intp],
    chosen: Choices,
) -> dict[str, Any]:
    """Rows stay in their owners' units: products of rows are brought to one."""
    scales, n = entered.scales, len(owner)
    common = scales.exponent[:1]
    shift = wide_entry.shifts_of_rows(sums.exponent, common, entered.between is not None)
    table = WideTable(party, _pieces(uploads, n, entered.between), n, len(grid))
    with party.stage("second moments"):
        products = await dual.sums_of(await table.gram())
    with party.stage("covariance"):
        i, j = np.triu_indices(n)
        place = owner[i] * len(shift) + owner[j]
        packed = await dual.in_units_of_rows(products, wide_entry.pairs(shift), place)
    joint = Joint(packed, common, grid, scales.largest, entered.joint.rows, 1.0)
    return await analyse_wide(party, joint, table, shift[owner], False, None, chosen)


async def _standardised(
    party: Party,
    uploads: Uploads,
    sums: RowSums,
    entered: Entered,
    grid: SecretArray,
    owner: NDArray[np.intp],
    chosen: Choices,
) -> dict[str, Any]:
    """Every entry is divided by the joint deviation first, a piece at a time; columns then have norm 1."""
    n, width = len(owner), len(grid)
    with party.stage("covariance"):
        standard = await wide_entry.standard(sums, entered)
    spool = Spool(2 * n)
    start, own = 0, owner if standard.between is None else owner[: -len(sums.count)]
    with party.stage("standardise"):
        for piece in _pieces(uploads, SCALED_AT_ONCE * n, None)():
            stop = start + piece.shape[1]
            entries = SecretArray(party, piece, ENTRIES)
            done = await wide_entry.standardised(entries, standard.factor[:, start:stop], own)
            if standard.between is not None:
                done = concatenate([done, standard.between[:, start:stop].T], 1)
            spool.append(stop - start, [(False, np.ascontiguousarray(split)) for split in done.data])
            party.progress(f"standardise, column {stop:,} of {width:,}", stop / width)
            start = stop
    uploads.close()

    table = WideTable(party, pieces_in(spool, n), n, width)
    with party.stage("second moments"):
        products = await dual.sums_of(await table.gram())
    packed = dual.joined(products.reshape(1, -1))
    scales, joint_rows = entered.scales, entered.joint
    joint = Joint(packed, scales.exponent, grid, scales.largest, joint_rows.rows, joint_rows.ratio)
    inverse = (standard.inverse, standard.power)
    shift = scales.exponent[:1] * 0
    try:
        return await analyse_wide(party, joint, table, shift, False, inverse, chosen, summed=False)
    finally:
        spool.close()


def _pieces(uploads: Uploads, rows: int, last: SecretArray | None) -> Callable[[], Iterator[Words]]:
    """All columns of all owners' rows side by side, and of the last rows, in pieces as for a table of so many rows."""
    width = min(spool.rows for spool in uploads.rows.values())
    count = -(-width // columns_of_piece(rows))

    def pieces() -> Iterator[Words]:
        start = 0
        for words in uploads.pieces(width, count):
            piece = words.reshape(2, words.shape[1], -1, 2)
            if last is not None:
                stop = start + piece.shape[1]
                piece = np.concatenate([piece, last.data[:, :, start:stop].transpose(0, 2, 1, 3)], axis=2)
                start = stop
            yield piece

    return pieces
