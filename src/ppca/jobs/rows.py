"""The form "rows": the sums of row owners, in secret scales, become one covariance."""

from __future__ import annotations

from dataclasses import fields

from ..algorithms.input_ranges import moment_ranges
from ..algorithms.joint_covariance import COUNT, COUNT_BITS, JointCovariance, OwnerMoments, joint_covariance
from ..algorithms.joint_covariance_missing import OwnerMomentsMissing, joint_covariance_missing
from ..protocol import Party, SecretArray, concatenate, stack
from .errors import Refusal
from .input_checks import check_ranges
from .kept import keep_sums, recall_sums
from .parts import parts_by_receiver
from .spec import MEAN, JobSpec
from .uploads import JobUploads


async def enter(party: Party, job: JobSpec, uploads: JobUploads) -> JointCovariance:
    """Return the joint covariance from the moments of every owner, one owner after the other.

    Inputs: the fields of `OwnerMoments` (`OwnerMomentsMissing`, if missing values count as the joint mean).
    """
    inputs = uploads.inputs(party)
    data, width = job.data, len(inputs[2])
    check_width(job, width)
    mean_for_missing, receivers = data.missing == MEAN, parts_by_receiver(job)
    names = [field.name for field in fields(OwnerMomentsMissing if mean_for_missing else OwnerMoments)]
    each = {name: inputs[k :: len(names)] for k, name in enumerate(names)}
    del inputs
    sums = {name: concatenate(parts) if name in ("count", "root") else _stacked(parts) for name, parts in each.items()}
    if data.check_inputs:
        with party.stage("input checks"):
            checked = OwnerMomentsMissing(**sums) if mean_for_missing else OwnerMoments(**sums)
            await check_ranges(party, await moment_ranges(party, checked), data.owners)
    if data.add_to is not None:
        old = recall_sums(party, data.add_to, job.keep, receivers)
        if old.keys() != sums.keys():
            raise Refusal(
                f"missing values {'do not count' if mean_for_missing else 'count'} as the joint mean in the sums "
                f"kept as {data.add_to!r}: these rows cannot be added. Read missing values as in the first fit, or "
                "fit all owners again."
            )
        sums = {name: concatenate([old[name], new]) for name, new in sums.items()}
    if data.rows_at_least is not None:
        await check_rows(party, sums["count"], data.rows_at_least)
    if job.keep is not None:
        keep_sums(party, job.keep, sums, receivers)
    with party.stage("covariance"):
        party.progress("covariance", 0.0)
        common = not data.standardize
        entered = (
            joint_covariance_missing(OwnerMomentsMissing(**sums), width, common)
            if mean_for_missing
            else joint_covariance(OwnerMoments(**sums), width, common)
        )
        del sums
        return await entered


def check_width(job: JobSpec, width: int) -> None:
    """Raise `Refusal` if the inputs do not have the number of columns of the job."""
    if width != job.data.width:
        raise Refusal(f"the inputs have {width:,} columns, the job has {job.data.width:,}")


def _stacked(parts: list[SecretArray]) -> SecretArray:
    """Stack the owners' arrays. Each is removed from the list and freed: the factors take most of a server's memory."""
    if len({(part.shape, part.dtype) for part in parts}) > 1:
        found: SecretArray = stack(parts)
        return found
    whole = parts[0].zeros((len(parts), *parts[0].shape))
    for owner in range(len(parts)):
        whole.data[:, owner] = parts.pop(0).data
    return whole


async def check_rows(party: Party, count: SecretArray, least: int) -> None:
    """Raise `Refusal` if there are fewer than `least` joint rows. Compares their shared number and opens one bit."""
    with party.stage("number of rows"):
        total = count.sum().retype(COUNT)
        why = f"the job needs at least {least} rows"
        if least >= 1 << COUNT_BITS or not await (await (total >= least)).open(what="enough rows", why=why):
            raise Refusal(
                f"all owners together have fewer than {least:,} rows, the minimum of this job or of an operator. "
                "Nothing else was opened. Find more owners, or agree on a smaller minimum."
            )
