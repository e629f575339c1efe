"""The program for owners of columns who have fewer rows than columns: their products of rows add up, then the same analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import dual
from ..algorithms.entry import Joint
from ..algorithms.scales import EXPONENT, maximum, on_grid
from ..algorithms.wide import WideTable, columns_of_piece
from ..protocol import Party, RingType, SecretArray, concatenate, stack
from ..servers.programs import offered
from .analysis import Choices
from .columns import too_few
from .kept import drop_sums
from .matching import MINIMUM
from .uploads import Uploads, align, forget
from .wide import analyse_wide, too_large

INVERSE = RingType(128, 40, 2)
"""2^e / deviation of a column, e the exponent of the deviation."""

Words = NDArray[np.uint64]


@offered
async def fit(
    party: Party, *inputs: SecretArray, table: str, widths: list[int], minimum: int = MINIMUM, choices: dict[str, Any]
) -> dict[str, Any]:
    """Joint PCA of owners who know the common rows and have centred (and standardised) their columns over them.

    Inputs, of one owner after the other: exponents, mantissas and their upper halves of its means; its products of rows; and the
    exponent of its unit, or if columns are standardised the exponents of their deviations and 2^exponent / deviation.
    """
    chosen = Choices(**choices)
    with party.stage("align"):
        answer = align(party, table, minimum, turned=True)
    if "refused" in answer:
        return answer
    rows, width = answer["rows"], sum(widths)
    if refused := too_few(rows, width, chosen) or too_large(rows, width):
        return {"rows": rows, "refused": refused}
    if chosen.keep is not None:
        drop_sums(party, chosen.keep)
    parts = 6 if chosen.standardize else 5
    mean_exponent, mantissa, upper = (concatenate(inputs[k::parts]) for k in range(3))
    products, exponent = stack(inputs[3::parts]), concatenate(inputs[4::parts])
    source = WideTable(party, pieces_of(Uploads.of(party, table), rows), rows, width)
    inverse = None
    with party.stage("covariance"):
        means = (part.reshape(1, width) for part in (mantissa, upper, mean_exponent))
        largest, grid = await on_grid(*means)
        if chosen.standardize:
            ones = SecretArray.constant(party, np.ones(width, np.int64), RingType(128, 0, 62))
            inverse = (concatenate(inputs[5::parts]), ones)
            packed, shift = dual.joined(products), exponent[:1] * 0
        else:
            common = await maximum(exponent)
            below = (common - exponent).retype(EXPONENT)
            packed = await dual.in_one_unit(products, below * 2)
            shift, exponent = below[np.repeat(np.arange(len(widths)), widths)], common.reshape(1)
    joint = Joint(packed, exponent, grid[0], largest, rows, 1.0)
    found = await analyse_wide(party, joint, source, shift, not chosen.standardize, inverse, chosen)
    await forget(party, table=table)
    return found


def pieces_of(uploads: Uploads, rows: int) -> Callable[[], Iterator[Words]]:
    """All owners' columns, those of the first owner first, as a `WideTable` reads them."""

    def pieces() -> Iterator[Words]:
        step = columns_of_piece(rows)
        for _, spool in sorted(uploads.rows.items()):
            for start in range(0, spool.rows, step):
                words = spool.take(slice(start, start + step))
                yield words.reshape(2, words.shape[1], rows, 2)

    return pieces
