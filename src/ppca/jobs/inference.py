"""Inference on shares: the model and the rows are both secret; only the agreed result reaches its receiver.

transform   rows projected onto the components                1 round; standardised: 3
inverse     rows rebuilt from projected ones                  2 rounds; standardised: the receiver restores the units
scores      squared distance of every row to its projection   8 more rounds (standardised: 10); shared until all done
flags       score above a public threshold, or the `contamination` fraction of rows with the largest scores
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..algorithms.input_ranges import Ranges, table_bound, table_projections
from ..protocol import Held, Party, RingType, SecretArray, concatenate, together
from .errors import Refusal
from .infer import INVERSE, SCORES, TRANSFORM, UseModel, scale_of
from .input_checks import check_ranges
from .input_types import COORDINATE, ROW_FRAC, row_type
from .kept import UNITS, check_allowed, kept
from .loading import job_of
from .openings import SAME_UNITS
from .spec import COORDINATES, Data, JobSpec
from .uploads import Uploads, align, forget

SCORE_FRAC = 50
"""Fractional bits of scores. So many that squares of small residuals keep their digits."""

SCORE = RingType(128, SCORE_FRAC, 46)
HIGHEST = 2.0 ** (SCORE.span - 1)
"""Maximum threshold of scores, in squared units of the servers."""

MAX_SCORE = 1.5 * 2.0**45
"""Value that replaces scores above 2^45. Rows up to six million deviations away still have distinct scores."""

COARSE = RingType(128, 16, 92)
"""Format of scores with about seven digits: its span holds the sum over all rows that owners can send."""

NUMBERS = 1 << 19
"""Maximum number of entries of joint rows that are processed at a time, whatever the number of rows."""


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
    """Return coordinates to reveal: all 80 fractional bits, and the row split only, which is what a receiver gets.

    The rest of the deviations is divided out of the components, which are fewer than the rows.
    """
    if "inverse" not in model:
        x, weights = await centred(rows, model), model["vectors"]
    else:
        x, weights = await together(_levelled(rows, model), model["vectors"] * model["inverse"])
    result: SecretArray = await x.matmul(weights.T, frac=80, only=Held.LEFT)
    return result


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
            f"the model keeps all {width} components, which describe every row exactly, so no row can stand out. Fit "
            f"with fewer"
        )
    rest = x - await (z @ model["vectors"])
    wide, short = await together(rest.inner(rest, axis=1, frac=80), rest.truncate(40 - COARSE.frac // 2))
    coarse = await short.inner(short, axis=1, frac=COARSE.frac)
    far = await (coarse.retype(COARSE) >= 2.0**45)
    wide = wide.retype(RingType(128, 80, 46))  # holds scores below 2^45
    wide = wide + await (far * (MAX_SCORE - wide))
    score: SecretArray = await wide.retype(RingType(128, 80, 46)).truncate(80 - SCORE_FRAC)
    return score.retype(SCORE)


@dataclass(frozen=True)
class Use:
    """Request to a kept model: parts of `UseModel`, for one receiver. threshold: in squared units of the servers."""

    parts: tuple[str, ...]
    threshold: float | None
    contamination: float | None
    receiver: str

    @classmethod
    def of(cls, job: JobSpec) -> Self:
        """Return the request of a job. Convert its threshold from squared units of the data to those of the servers."""
        if not isinstance(job.analysis, UseModel):
            raise Refusal(f"{job.analysis.NAME} does not use a kept model")
        ((receiver, parts),) = job.receivers.items()
        use, scale = job.analysis, scale_of(job)
        unit = math.ldexp(1.0, scale)
        threshold = use.threshold
        if threshold is not None:  # if all columns were constant, the unit is zero and so are all scores
            try:
                threshold = min(math.ldexp(threshold, -2 * scale), HIGHEST) if unit else HIGHEST
            except OverflowError:
                threshold = HIGHEST
        return cls(tuple(parts), threshold, use.contamination, receiver)


async def infer(party: Party, *, table: str, job: dict[str, Any]) -> dict[str, Any]:
    """Use a kept model on uploaded rows and erase them; or return why there are too few rows in common.

    If rows are joined by tags, the receiver gets the tags of the common rows: an owner can recognise its ids by them.
    If several column owners are checked, their numbers must be in range (`input_checks`).
    """
    spec = job_of(job)
    use, data = Use.of(spec), spec.data
    arrays, fit = _granted(party, spec, use)
    uploads, told = Uploads.of(party, table), {}
    if data.align is not None:
        with party.stage("align"):
            answer = align(party, table, data)
        if "refused" in answer:
            return answer
        told = {"rows": answer["rows"]}
    rows = told["rows"] if told else sum(spool.rows for spool in uploads.rows.values())
    if not rows:
        raise Refusal("there are zero new rows. Contribute at least one row")
    check_number(rows, data.rows_at_least)
    await check_units(party, arrays, spec)
    owners = data.checked_owners
    if data.align is not None and owners is not None and len(owners) > 1:
        with party.stage("input checks"):
            await _check_rows(party, uploads, rows, data, owners)
    batches = _own_rows(party, uploads, data) if data.align is None else _common_rows(party, uploads, rows, data)
    found = await _inferred(party, batches, arrays, use)
    await forget(party, table=table)
    tags = {"tags": answer["tags"]} if told and "tags" in answer else {}
    return {"fit": fit, **told, "to": {use.receiver: {**tags, **found}}}


def check_number(rows: int, least: int | None) -> None:
    """Raise `Refusal` if there are fewer new rows than the job or an operator requires. Servers see their number."""
    if least is not None and rows < least:
        raise Refusal(
            f"there are {rows:,} new rows; this job needs at least {least:,} (rows_at_least). Nothing was computed."
        )


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
                "scale_exponents of this job are not those of the model: its new rows would be weighed differently "
                "from what the owners of the model approved. Make the job with `ppca job use`, from the result of "
                "the fit."
            )


def _granted(party: Party, job: JobSpec, use: Use) -> tuple[dict[str, SecretArray], str]:
    """Return the arrays of a model and the run that made it; raise `NotAllowed` if this use is not allowed."""
    assert isinstance(job.analysis, UseModel)
    arrays, public = kept(party, job.analysis.model)
    for part in use.parts:
        check_allowed(public["allowed"], part, use.receiver)
    return arrays, public["fit"]


async def _inferred(
    party: Party, batches: Iterable[SecretArray], model: dict[str, SecretArray], use: Use
) -> dict[str, Any]:
    """Compute and reveal the requested parts for all rows."""
    found: list[SecretArray] = []
    kind = use.parts[0] if use.parts[0] in (TRANSFORM, INVERSE) else SCORES
    with party.stage({TRANSFORM: "transform", INVERSE: "inverse transform"}.get(kind, "detect")):
        for batch in batches:
            _check_width(batch, model, kind)
            if kind == TRANSFORM:
                found.append(await coordinates(batch, model))
            elif kind == INVERSE:
                found.append(await rebuilt(batch, model))
            else:
                found.append(await residuals(*await project(batch, model), model))
        every: SecretArray = concatenate(found)
        if kind == TRANSFORM:
            return {"coordinates": every.reveal(use.receiver, what="coordinates", why="agreed result")}
        if kind == INVERSE:
            return {"rebuilt": every.reveal(use.receiver, what="rebuilt rows", why="agreed result")}
        return await _verdicts(party, every.retype(SCORE), use)


def _check_width(rows: SecretArray, model: dict[str, SecretArray], kind: str) -> None:
    count, width = model["vectors"].shape
    if kind == INVERSE and rows.shape[1] > count:
        raise Refusal(
            f"coordinates of shape {rows.shape} do not fit a model of {count} components; give at most so many"
        )
    if kind != INVERSE and rows.shape[1] != width:
        raise Refusal(f"rows of shape {rows.shape} do not fit a model of {width} columns; give the columns of the fit")


async def _check_rows(party: Party, uploads: Uploads, rows: int, data: Data, owners: Sequence[str]) -> None:
    """Refuse owners whose new rows are out of range: their squares would overflow and scores would be meaningless."""
    kind = row_type(data.standardize)
    widths = [spool.width // kind.limbs for _, spool in sorted(uploads.rows.items())]
    ranges, whose = Ranges(len(widths)), np.repeat(np.arange(len(widths)), widths)
    pieces = (batch.data for batch in _common_rows(party, uploads, rows, data))
    sums = table_projections(party, pieces, whose, len(widths))
    for number, width in enumerate(widths):
        bound = table_bound(rows * width, kind.frac + kind.span)
        ranges.between(sums[number], -bound, bound, np.full(sums.shape[1], number))
    await check_ranges(party, ranges, owners)


def _own_rows(party: Party, uploads: Uploads, data: Data) -> Iterator[SecretArray]:
    """Yield the rows of all owners in batches, owner by owner."""
    kind = COORDINATE if data.form == COORDINATES else row_type(data.standardize)
    total, done = sum(spool.rows for spool in uploads.rows.values()), 0
    for _, spool in sorted(uploads.rows.items()):
        step = max(1, NUMBERS // max(1, spool.width // kind.limbs))
        for start in range(0, spool.rows, step):
            party.progress(f"new rows, {done:,} of {total:,}", done / total)
            words = spool.take(slice(start, start + step))
            done += words.shape[1]
            yield SecretArray(party, words.reshape(2, words.shape[1], -1, kind.limbs), kind)


def _common_rows(party: Party, uploads: Uploads, rows: int, data: Data) -> Iterator[SecretArray]:
    """Yield the common rows with the columns of all owners, in batches."""
    kind = row_type(data.standardize)
    width = sum(spool.width for spool in uploads.rows.values()) // kind.limbs
    count = max(1, -(-rows * width // NUMBERS))
    for done, words in enumerate(uploads.pieces(rows, count)):
        party.progress(f"joint rows, batch {done + 1} of {count}", done / count)
        yield SecretArray(party, words.reshape(2, -1, width, kind.limbs), kind)


async def _verdicts(party: Party, score: SecretArray, use: Use) -> dict[str, Any]:
    """Return scores and flags, if requested."""
    result: dict[str, Any] = {}
    if SCORES in use.parts:
        result["scores"] = score.reveal(use.receiver, what="anomaly scores", why="agreed result")
    flags: SecretArray | None = None
    if use.threshold is not None:
        flags = await (score > use.threshold)
    elif use.contamination is not None:
        flags = await largest(score, max(1, math.ceil(use.contamination * len(score))), party)
    if flags is not None:
        result["flags"] = flags.reveal(use.receiver, what="anomaly flags", why="agreed result")
    return result


async def largest(score: SecretArray, count: int, party: Party) -> SecretArray:
    """Return bits that mark the `count` largest of non-negative scores (more if scores are equal). Opens nothing.

    Bisection for the threshold with a secret interval: it starts as [0, 2^span) and ends with a width of one ulp.
    Four rounds per step: compare all scores with the midpoint, count, compare the count, keep one half.
    """
    wide = score.dtype.span
    low = score[0] * 0
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
