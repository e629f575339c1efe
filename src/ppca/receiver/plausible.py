"""Refuse impossible results: what no data can give, because an owner or a server did not follow the program.

A result whose decomposition was not verified on shares is refused, too. The checks are on what the servers returned,
joined for one receiver (`unsealing`), before it is put into the units of the data.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..algorithms.joint_covariance import COUNT_BITS
from ..algorithms.scales import NONE
from ..jobs.regression import CORRELATION, INFLATION, OPENED

MAX_EXPONENT, MAX_SQUARE_EXPONENT = 1100, 511
"""Largest exponents of two of a scale, and of one whose square is a double."""

ROUNDING = 1e-6
"""Part of the total variance that rounding can make of a variance of zero."""


USES = {"coordinates": 2, "rebuilt": 2, "scores": 1, "flags": 1}
"""Results of the use of a kept model, and the number of their dimensions."""


class ImpossibleResult(ValueError):
    """A result that cannot be right; it is not used."""


def check_fit(result: dict[str, Any], columns: int, *, standardized: bool, unverified: bool = False) -> None:
    """Raise ImpossibleResult, which names the part, unless a fit can have this result. columns: of this receiver.

    unverified: accept a result that was not verified on shares. It is not checked: its values can be anything.
    """
    try:
        if unverified and result["verified"] is False:
            return
        _check_facts(result, standardized)
        rows, count = int(result["rows"]), int(result["count"])
        _check_rows(rows)
        _shape(result, "components", (count, columns), 1 + ROUNDING)
        _shape(result, "loadings", (count, columns), 1 + ROUNDING)
        _check_variances(result, count)
        _shape(result, "mean", (columns,), 1.0)
        _exponents(result, "mean_exponents", columns)
        for name in ("inverse", "power"):
            if _shape(result, name, (columns,)) and np.asarray(result[name]).min() < -ROUNDING:
                raise ImpossibleResult(f"deviations: {name} is negative")
        if "exponents" in result:
            _exponents(result, "exponents", columns if standardized else 1)
            if "values" in result and not standardized and np.asarray(result["exponents"]).max() > MAX_SQUARE_EXPONENT:
                raise ImpossibleResult(
                    "a column has deviations above 1e154, whose square does not fit into a double. Standardize the columns, or "
                    "choose a larger unit for this column"
                )
    except ImpossibleResult:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, ArithmeticError) as error:
        raise ImpossibleResult(f"it does not hold what a fit reveals ({type(error).__name__}: {error})") from None


def check_uses(result: dict[str, Any]) -> None:
    """The same of the use of a kept model."""
    try:
        found = {name: np.asarray(result[name]) for name in USES if name in result}
        if not found or len({len(values) for values in found.values()}) != 1:
            raise ImpossibleResult("it does not have one line for every new row")
        for name, values in found.items():
            if values.ndim != USES[name] or not np.isfinite(values).all():
                raise ImpossibleResult(f"{name} are not finite numbers of the right shape")
        if "flags" in found and not np.isin(found["flags"], (0, 1)).all():
            raise ImpossibleResult("flags are not 0 or 1")
    except ImpossibleResult:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ImpossibleResult(f"it does not hold what a model is used for ({type(error).__name__}: {error})") from None


def check_regression(result: dict[str, Any], columns: int, parts: Collection[str]) -> None:
    """The same of a regression. columns: of the job, with the target; parts: of this receiver, as in `OPENED`."""
    try:
        _check_rows(int(result["rows"]))
        if not np.isfinite(result["resolution"]) or not 0 < result.get("share", 1.0) < np.inf:
            raise ImpossibleResult(f"the resolution is {result['resolution']} and the share {result.get('share', 1.0)}")
        shapes = {
            "coefficients": (columns - 1,),
            "intercept": (1,),
            "errors": (columns,),
            "r2": (1,),
            "residuals": (1,),
            CORRELATION: (columns * (columns + 1) // 2,),
            INFLATION: (columns - 1,),
        }
        for part in parts:
            what, *unit = OPENED[part]
            _present(result, what, shapes[part], 1 + ROUNDING if unit else np.inf)
            for name in unit:
                _exponents(result, name, shapes[part][0])
        _check_numbers(result, columns)
    except ImpossibleResult:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, ArithmeticError) as error:
        raise ImpossibleResult(
            f"it does not hold what a regression reveals ({type(error).__name__}: {error})"
        ) from None


def _check_numbers(result: dict[str, Any], columns: int) -> None:
    """Check what the numbers of a regression can be."""
    (unexplained,) = OPENED["r2"]
    exact = True  # rounding can make a sum of squares of an exact fit negative
    if unexplained in result:
        share = float(np.ravel(result[unexplained])[0])
        if not -ROUNDING <= share <= 1 + ROUNDING:
            raise ImpossibleResult(f"R squared is {1 - share:g}; it lies between 0 and 1")
        exact = share <= ROUNDING
    for part in ("errors", "residuals"):
        name = OPENED[part][0]
        if name in result and not exact and np.asarray(result[name]).min() < 0:
            raise ImpossibleResult(f"{name}: a square is negative")
    (matrix,), (factors,) = OPENED[CORRELATION], OPENED[INFLATION]
    if matrix in result:
        packed = np.asarray(result[matrix], np.float64)
        i, j = np.triu_indices(columns)
        if np.abs(packed).max() > 1 + ROUNDING or np.abs(packed[i == j] - 1).max() > ROUNDING:
            raise ImpossibleResult(f"{matrix}: a correlation is above 1, or that of a column with itself is not 1")
    if factors in result and np.asarray(result[factors]).min() < 1 - ROUNDING:
        raise ImpossibleResult(f"{factors}: one is below 1")


def _present(result: dict[str, Any], name: str, shape: tuple[int, ...], largest: float) -> None:
    if not _shape(result, name, shape, largest):
        raise ImpossibleResult(f"{name} are missing")


def _check_facts(result: dict[str, Any], standardized: bool) -> None:
    if result["verified"] is not True:
        raise ImpossibleResult(
            "the servers could not verify the decomposition on shares. Propose the job again with fewer components "
            "or with another solver"
        )
    if result["standardized"] is not standardized:
        raise ImpossibleResult(f"standardized is {result['standardized']!r}; the job says {standardized}")


def _check_rows(rows: int) -> None:
    if not 2 <= rows < 1 << COUNT_BITS:
        raise ImpossibleResult(f"the number of rows is {rows:,}; there are 2 to 2^{COUNT_BITS} - 1")


def _check_variances(result: dict[str, Any], count: int) -> None:
    if not _shape(result, "values", (count,)):
        return
    values, total, factor = np.asarray(result["values"]), float(result["total"]), float(result["factor"])
    if not (np.isfinite(total) and np.isfinite(factor) and total >= -ROUNDING and factor >= 0):
        raise ImpossibleResult(f"the total variance is {total} times a unit from {factor}")
    slack = ROUNDING + float(result["resolution"]) * abs(total)
    if count and values.min() < -slack:
        raise ImpossibleResult(
            f"a variance is negative: {values.min():g} of a total of {total:g}, in the servers' units"
        )
    if count and values.max() > total + slack:
        raise ImpossibleResult(f"a variance, {values.max():g}, is above the total, {total:g}, in the servers' units")


def _shape(result: dict[str, Any], name: str, shape: tuple[int, ...], largest: float = np.inf) -> bool:
    """Return whether there is such a part; it has this shape and finite numbers up to `largest`."""
    if name not in result:
        return False
    values = np.asarray(result[name])
    if values.shape != shape or values.dtype.kind not in "iuf":
        raise ImpossibleResult(f"{name} has shape {values.shape}; {shape} was expected")
    if not np.isfinite(values).all() or (values.size and np.abs(values).max() > largest):
        raise ImpossibleResult(f"{name} has numbers up to {np.abs(values).max():g}; they are at most {largest:g}")
    return True


def _exponents(result: dict[str, Any], name: str, count: int) -> None:
    if not _shape(result, name, (count,)):
        return
    values = np.asarray(result[name])
    if values.dtype.kind not in "iu" or values.min() < 2 * NONE or values.max() > MAX_EXPONENT:
        raise ImpossibleResult(f"{name} run from {values.min()} to {values.max()}; no number has such a scale")
