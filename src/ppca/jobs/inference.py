"""Inference on shares: the model and the rows are both secret; only the agreed result reaches its receiver.

transform   rows projected onto the components                1 round; standardised: 3
inverse     rows rebuilt from projected ones                  2 rounds; standardised: the receiver restores the units
scores      squared distance of every row to its projection   8 more rounds (standardised: 10); shared until all done
flags       score above a public threshold, or the `contamination` fraction of rows with the largest scores
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..protocol import Held, Party, RingType, SecretArray, concatenate, together
from ..protocol.opening import randomize_below
from .errors import Refusal
from .input_types import ROW_FRAC
from .kept import UNITS, check_allowed, kept
from .new_rows import SharedRows
from .openings import SAME_UNITS
from .spec import COORDINATES, JobSpec

TRANSFORM, SCORES, FLAGS, INVERSE = "transform", "scores", "flags", "inverse"
OPENED = {
    TRANSFORM: "coordinates",
    SCORES: "anomaly scores",
    FLAGS: "anomaly flags",
    INVERSE: "rebuilt rows",
}
"""The values that are revealed for each part of the result."""

SCORE_FRAC = 50
"""Fractional bits of scores. So many that squares of small residuals keep their digits."""

SCORE = RingType(128, SCORE_FRAC, 46)
HIGHEST = 2.0 ** (SCORE.span - 1)
"""Maximum threshold of scores, in squared units of the servers."""

MAX_SCORE = 1.5 * 2.0**45
"""Value that replaces scores above 2^45. Rows up to six million deviations away still have distinct scores."""

COARSE = RingType(128, 16, 92)
"""Format of scores with about seven digits: its span holds the sum over all rows that owners can send."""


async def centred(rows: SecretArray, model: dict[str, SecretArray]) -> SecretArray:
    """Rows minus the joint mean, divided by the joint deviations if the model is standardised; 40 fractional bits."""
    if "inverse" not in model:
        return rows - model["mean"].astype(40)
    result: SecretArray = await (await _levelled(rows, model) * model["inverse"])
    return result


async def _levelled(rows: SecretArray, model: dict[str, SecretArray]) -> SecretArray:
    """Rows minus the joint mean, times a power of two near the inverse of the deviation; 40 fractional bits."""
    spread = rows - model["mean"].astype(ROW_FRAC)
    scaled = await spread.mul(model["power"].retype(RingType(128, 0, 62)), frac=ROW_FRAC)
    result: SecretArray = await scaled.truncate(ROW_FRAC - 40)
    return result


async def coordinates(rows: SecretArray, model: dict[str, SecretArray]) -> SecretArray:
    """Return coordinates to reveal, in the row split only, which is what a receiver gets.

    The product is not truncated; its bits below 2^-40 are made random, so that they tell nothing more of the rows.
    The rest of the deviations is divided out of the components, which are fewer than the rows.
    """
    if "inverse" not in model:
        x, weights = await centred(rows, model), model["vectors"]
    else:
        x, weights = await together(_levelled(rows, model), model["vectors"] * model["inverse"])
    product: SecretArray = await x.matmul(weights.T, frac=80, only=Held.LEFT)
    return randomize_below(product, 40)


async def project(rows: SecretArray, model: dict[str, SecretArray]) -> tuple[SecretArray, SecretArray]:
    """Centred rows and their coordinates."""
    x = await centred(rows, model)
    z = await (x @ model["vectors"].T)
    return x, z


async def rebuilt(z: SecretArray, model: dict[str, SecretArray]) -> SecretArray:
    """Rows in units of the model from their first coordinates; of a standardised model in standardised units."""
    rows: SecretArray = await (z @ model["vectors"][: z.shape[1]])
    return rows if "inverse" in model else rows + model["mean"].astype(40)


async def residuals(x: SecretArray, z: SecretArray, model: dict[str, SecretArray]) -> SecretArray:
    """Return the squared distance of every centred row to its projection; `MAX_SCORE` if it is above 2^45.

    The truncation is exact, because a local one would fail too often for large scores. A model with all components
    describes every row exactly, so only rounding would be left: such a model is refused.
    """
    count, width = model["vectors"].shape
    if count == width:
        raise Refusal(
            f"the model keeps all {width} components, which describe every row exactly, so no row "
            "can stand out. Fit with fewer"
        )
    rest = x - await (z @ model["vectors"])
    wide, short = await together(rest.inner(rest, axis=1, frac=80), rest.truncate(40 - COARSE.frac // 2))
    coarse = await short.inner(short, axis=1, frac=COARSE.frac)
    far = await (coarse.retype(COARSE) >= 2.0**45)
    wide = wide.retype(RingType(128, 80, 46))  # holds scores below 2^45
    wide = wide + await (far * (MAX_SCORE - wide))
    score: SecretArray = await wide.retype(RingType(128, 80, 46)).truncate(80 - SCORE_FRAC)
    return score.retype(SCORE)


def scale_of(job: JobSpec) -> int:
    """Return the exponent of two of one unit of the servers in the units of the data; scores have its square."""
    return 0 if job.data.standardize or job.data.scales is None else job.data.scales[0]


async def use(
    party: Party,
    table: SharedRows,
    job: JobSpec,
    *,
    model: str,
    threshold: float | None = None,
    contamination: float | None = None,
) -> dict[str, Any]:
    """Use the kept model of this name on new rows, for what the one receiver of the job gets.

    threshold: in squared units of the data; contamination: a fraction of the rows. If rows were joined by tags, the
    receiver is told their tags: if it is one of the owners, it knows its ids by them.
    """
    ((receiver, parts),) = job.receivers.items()
    arrays, public = kept(party, model)
    for part in parts:
        check_allowed(public["allowed"], part, receiver)
    await check_units(party, arrays, job)
    kind = parts[0] if parts[0] in (TRANSFORM, INVERSE) else SCORES
    with party.stage({TRANSFORM: "transform", INVERSE: "inverse transform"}.get(kind, "detect")):
        every = await _of_all(table, arrays, kind)
        if kind == SCORES:
            limit = None if threshold is None else _threshold(threshold, job)
            found = await _verdicts(party, every.retype(SCORE), parts, receiver, limit, contamination)
        else:
            name = {TRANSFORM: "coordinates", INVERSE: "rebuilt"}[kind]
            found = {name: every.reveal(receiver, what=OPENED[kind], why="agreed result")}
    told = {"rows": table.count} if table.common else {}
    tags = {} if table.tags is None else {"tags": table.tags}
    return {"fit": public["fit"], **told, "to": {receiver: {**tags, **found}}}


def _threshold(threshold: float, job: JobSpec) -> float:
    """The threshold of a job in squared units of the servers. If all columns were constant, unit and scores are
    zero."""
    scale = scale_of(job)
    if not math.ldexp(1.0, scale):
        return HIGHEST
    try:
        return min(math.ldexp(threshold, -2 * scale), HIGHEST)
    except OverflowError:
        return HIGHEST


async def check_units(party: Party, model: dict[str, SecretArray], job: JobSpec) -> None:
    """Raise `Refusal` if new rows are not in the units of the model. Checked if inputs are checked; opens one bit.

    In other units a column can have a larger weight than in the model. Scores and flags could then reveal that column
    alone.
    """
    rebuilds = job.data.form == COORDINATES and "inverse" in model  # coordinates of a standardised model are unitless
    if not job.data.check_inputs or rebuilds:
        return
    if UNITS not in model:
        raise Refusal("this model was kept without its scale exponents, by an older build. Fit and keep it again.")
    with party.stage("units"):
        width = len(job.data.scales or ())
        others = await (model[UNITS].broadcast_to((width,)) != np.asarray(job.data.scales, np.int64))
        same = await (others.sum().within(width) == 0)
        if not await same.open(what=SAME_UNITS, why="new rows must be in the units of the model"):
            raise Refusal(
                "scale_exponents of this job are not those of the model: its new rows would be weighed "
                "differently from what the owners of the model approved. Make the job with `ppca job use`, "
                "from the result of the fit."
            )


async def _of_all(table: SharedRows, model: dict[str, SecretArray], kind: str) -> SecretArray:
    """Coordinates, rebuilt rows or scores of all rows."""
    found: list[SecretArray] = []
    for batch in table.batches():
        _check_width(batch, model, kind)
        if kind == TRANSFORM:
            found.append(await coordinates(batch, model))
        elif kind == INVERSE:
            found.append(await rebuilt(batch, model))
        else:
            found.append(await residuals(*await project(batch, model), model))
    every: SecretArray = concatenate(found)
    return every


def _check_width(rows: SecretArray, model: dict[str, SecretArray], kind: str) -> None:
    count, width = model["vectors"].shape
    if kind == INVERSE and rows.shape[1] > count:
        raise Refusal(
            f"coordinates of shape {rows.shape} do not fit a model of {count} components; give at "
            "most this number of columns"
        )
    if kind != INVERSE and rows.shape[1] != width:
        raise Refusal(f"rows of shape {rows.shape} do not fit a model of {width} columns; give the columns of the fit")


async def _verdicts(
    party: Party,
    score: SecretArray,
    parts: Sequence[str],
    receiver: str,
    threshold: float | None,
    contamination: float | None,
) -> dict[str, Any]:
    """Scores and flags, as far as they are asked for. threshold: in squared units of the servers."""
    result: dict[str, Any] = {}
    if SCORES in parts:
        result["scores"] = score.reveal(receiver, what=OPENED[SCORES], why="agreed result")
    flags: SecretArray | None = None
    if threshold is not None:
        flags = await (score > threshold)
    elif contamination is not None:
        flags = await largest(score, max(1, math.ceil(contamination * len(score))), party)
    if flags is not None:
        result["flags"] = flags.reveal(receiver, what=OPENED[FLAGS], why="agreed result")
    return result


async def largest(score: SecretArray, count: int, party: Party) -> SecretArray:
    """Return bits that mark the `count` largest of non-negative scores (more if scores are equal), but none that is
    zero. Opens nothing.

    Bisection for the threshold with a secret interval, which starts at one ulp: its width is 2^span, and in the end one
    ulp.
    Four rounds per step: compare all scores with the midpoint, count, compare the count, keep one half.
    """
    wide = score.dtype.span
    low = score[0] * 0 + 2.0**-score.dtype.frac
    width = 2.0**wide
    steps = wide + score.dtype.frac
    for step in range(steps):
        width /= 2
        middle = low + width
        above = await (score >= middle)
        enough = await (above.sum() >= count)
        low = low + (enough * int(width * 2**score.dtype.frac)).retype(score.dtype)  # exact: whole ulps
        if step % 8 == 0:
            party.progress("anomaly threshold", step / steps)
    flags: SecretArray = await (score >= low)
    return flags
