"""Analysis of a shared covariance: normalise, decompose, choose components, reveal to receivers, keep a model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from ..algorithms.certificate import promise
from ..algorithms.covariance import Normalised, normalised_correlation, normalised_covariance
from ..algorithms.decomposition import (
    Spectrum,
    components_for,
    decompose,
    residual_bound,
    resolution,
    rounding,
)
from ..algorithms.joint_covariance import JointCovariance
from ..algorithms.orientation import oriented
from ..algorithms.scales import MEAN_FRAC, floating, in_units
from ..protocol import Party, RingType, SecretArray, together
from .errors import Refusal
from .input_types import RAW
from .kept import UNITS, keep
from .openings import NEXT
from .parts import has_scales, own_columns, parts_by_receiver
from .spec import JobSpec

SCALING_ERROR = 1.1e-9
"""Maximum relative error of a column divided by its deviation: that of `rsqrt` plus that of products with 40 fractional
bits."""


async def analyse(party: Party, joint: JointCovariance, job: JobSpec) -> dict[str, Any]:
    """Compute the result from the covariance and the means, which have secret scales.

    `joint.n_rows` and `joint.n_rows_scaled` are public if column owners made them so, otherwise shared.
    """
    d = len(joint.mean_mantissa)
    with party.stage("covariance"):
        normalise = normalised_correlation if job.data.standardize else normalised_covariance
        normalising = normalise(joint.triangle, d)
        joint.triangle = None  # nothing else needs it, and it is large
        scaled: Normalised
        scaled, means = await together(normalising, joint_means(joint, job))
    spectrum = await solved(party, scaled.matrix, job)
    with party.stage("result"):
        count = await components_wanted(parameters_of(job).components, spectrum, joint.n_rows)
    return await concluded(party, joint, scaled, spectrum, count, means, job)


@runtime_checkable
class Parameters(Protocol):
    """Fields that an analysis must have if its result is a PCA, such as `JointPCA`."""

    components: int | float | None
    solver: str
    tol: float
    fixed_iterations: int | None
    max_iterations: int | None


def parameters_of(job: JobSpec) -> Parameters:
    """Return the parameters of the analysis."""
    if not isinstance(job.analysis, Parameters):
        raise Refusal(f"{job.analysis.NAME} is not a PCA")
    return job.analysis


async def solved(party: Party, matrix: SecretArray, job: JobSpec) -> Spectrum:
    """Return the eigenpairs of a normalised matrix, computed by the solver of the job."""
    chosen = parameters_of(job)
    with party.stage("eigendecomposition"):
        return await decompose(
            matrix,
            run=party.run,
            solver=chosen.solver,
            tol=chosen.tol,
            max_iterations=chosen.max_iterations,
            fixed_iterations=chosen.fixed_iterations,
            top=chosen.components if isinstance(chosen.components, int) else None,
            progress=party.progress,
        )


@dataclass
class Means:
    """Joint means: mantissas below 1 and exponents for receivers; the same in the units of the covariance if a model is
    kept."""

    mean: SecretArray
    exponent: SecretArray
    kept: SecretArray | None


async def joint_means(joint: JointCovariance, job: JobSpec) -> Means:
    """Convert joint means on a grid to mantissas and exponents, in six rounds."""
    (mean, exponent), kept = await together(floating(joint.mean_mantissa, joint.mean_exponent), _kept_mean(joint, job))
    return Means(mean, exponent, kept)


async def concluded(
    party: Party,
    joint: JointCovariance,
    scaled: Normalised,
    spectrum: Spectrum,
    count: int,
    means: Means,
    job: JobSpec,
) -> dict[str, Any]:
    """Keep the first `count` eigenpairs, if the job keeps a model, and reveal them to their receivers."""
    with party.stage("result"):
        own = {receiver: own_columns(job, receiver) for receiver in job.receivers}
        turned = job.keep is not None or any(columns is not None for columns in own.values())
        if turned:
            spectrum = replace(spectrum, vectors=await oriented(spectrum.vectors[:count]))
        if job.keep is not None:
            assert means.kept is not None
            kept = {"vectors": spectrum.vectors[:count], "values": spectrum.values[:count], "mean": means.kept}
            kept[UNITS] = joint.column_exponent
            if scaled.inverse_deviation is not None:
                inverse, kept["power"] = scaled.inverse_deviation
                kept["inverse"] = await _unshrunk(inverse, joint.n_rows_scaled)
            keep(party, job.keep, kept, {"features": len(joint.mean_mantissa), "components": count})
        party.progress("result", 1.0)
        following = None if parameters_of(job).components is None else spectrum.left_out(count)
        to = {
            receiver: _revealed(receiver, parts, own[receiver], joint, scaled, spectrum, count, following, means)
            for receiver, parts in parts_by_receiver(job).items()
        }
    public = {"ratio": joint.n_rows_scaled if isinstance(joint.n_rows_scaled, float) else None, "oriented": turned}
    if isinstance(joint.n_rows, int):
        public["rows"] = joint.n_rows
    return public | facts_of(spectrum, scaled, count, joint.column_error) | {"to": to}


def _revealed(
    receiver: str,
    parts: list[str],
    own: slice | None,
    joint: JointCovariance,
    scaled: Normalised,
    spectrum: Spectrum,
    count: int,
    following: SecretArray | None,
    means: Means,
) -> dict[str, Any]:
    """Return the facts and the parts that one receiver gets. own: its columns, if it gets no values of other
    columns."""

    def reveal(array: SecretArray, what: str) -> Any:
        return array.reveal(receiver, what=what, why="agreed result")

    def by_column(array: SecretArray, what: str) -> Any:
        return reveal(array, what) if own is None else reveal(array[own], f"own {what}")

    standardized = scaled.inverse_deviation is not None
    found = {} if isinstance(joint.n_rows, int) else {"rows": reveal(joint.n_rows, "number of rows")}
    if has_scales(parts, standardized):
        found["exponents"] = (by_column if standardized else reveal)(joint.column_exponent, "scale exponents")
    if "components" in parts:
        found["components"] = reveal(spectrum.vectors[:count], "components")
    if own is not None:
        found["loadings"] = reveal(spectrum.vectors[:count, own], "loadings")
    if "variances" in parts:
        found["values"] = reveal(spectrum.values[:count], "explained variance")
        if following is not None and "components" in parts:
            found["following"] = reveal(following, NEXT)
        # The trace: the sum of all eigenvalues, also of those that were not requested and are not verified.
        found["total"] = reveal(scaled.matrix.diagonal().sum(), "total variance")
        found["factor"] = reveal(scaled.factor.retype(RingType(128, 100, 26)), "scale of the variance")
    if "means" in parts:
        found["mean"] = by_column(means.mean, "means")
        found["mean_exponents"] = by_column(means.exponent, "scale of the means")
    if "deviations" in parts and scaled.inverse_deviation is not None:
        inverse, power = scaled.inverse_deviation
        found["inverse"] = by_column(inverse, "deviations")
        found["power"] = by_column(power.retype(RingType(128, 60, 62)), "scale of the deviations")
    return found


async def _kept_mean(joint: JointCovariance, job: JobSpec) -> SecretArray | None:
    """Means in the units of the covariance, if the model is kept: inference subtracts them from rows in these units."""
    if job.keep is None:
        return None
    mean: SecretArray = await in_units(joint.mean_mantissa, joint.mean_exponent, joint.column_exponent)
    if not job.data.standardize:
        mean = await mean.truncate(MEAN_FRAC - RAW.frac)
    return mean


async def components_wanted(wanted: int | float | None, spectrum: Spectrum, rows: Any) -> int:
    """Return the number of components: as requested, or from the variance that they explain; at most `rows` if
    public."""
    most = len(spectrum.values) if not isinstance(rows, int) else min(len(spectrum.values), rows)
    if wanted is None:
        return most
    return min(most, await components_for(spectrum.values, wanted)) if isinstance(wanted, float) else wanted


async def _unshrunk(inverse: SecretArray, ratio: Any) -> SecretArray:
    """Reciprocals of the deviations of C from those of ratio * C.

    A public root is multiplied as a shared number, because the truncation is then exact: no later step verifies these
    numbers.
    """
    public = isinstance(ratio, float)
    root = SecretArray.constant(inverse.party, math.sqrt(ratio)) if public else await ratio.within(1).sqrt()
    found: SecretArray = await (inverse * root)
    return found


def facts_of(spectrum: Spectrum, scaled: Normalised, count: int, error: float) -> dict[str, Any]:
    """The public facts of a decomposition. error: see `JointCovariance`."""
    d, tolerance = spectrum.vectors.shape[1], spectrum.tolerance
    standardized = scaled.inverse_deviation is not None
    return {
        "count": count,
        "shift": scaled.shift,
        "solver": spectrum.solver,
        "iterations": spectrum.iterations,
        "standardized": standardized,
        "resolution": resolution(d, tolerance, spectrum.certified),
        "certificate": promise(2 * tolerance) if spectrum.certified else None,
        "tolerance": tolerance,
        "errors": {
            "residual": residual_bound(d, len(spectrum.values), tolerance),
            "rounding": rounding(d),
            "column": error,
            "scaling": SCALING_ERROR if standardized else 0.0,
        },
        "verified": spectrum.verified,
        "fell_back": spectrum.fell_back,
    }
