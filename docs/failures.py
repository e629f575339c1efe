"""Compute how likely a local truncation fails in a fit, by running fits on shares and adding up the probability of
every one.

A local truncation of a value v with F fractional bits fails in each of its two splits with probability |v| 2^(F - k), k
= 128 or 64 bits of the ring. A narrow product with the promise |v| < 2^span fails in each split that it makes with |v|
2^-(span + 41). Everything else is exact. The fits run on four servers in one thread; `counting` looks at every local
truncation of the code that servers run, with the value that it truncates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

from ppca import PCA, open_table
from ppca.algorithms import decomposition
from ppca.jobs.chunks import Chunk
from ppca.jobs.forms import compute
from ppca.jobs.spec import JobSpec
from ppca.jobs.uploads import JobUploads
from ppca.native import ring
from ppca.protocol import local_parties, multiply, run_lockstep
from ppca.protocol.dtypes import LOCAL_FAILURE_BITS, RingType
from ppca.protocol.shares import Held, Shares
from ppca.runtime import Account, Outcome

ITERATION, VERIFICATION, REST = "iteration", "verification", "rest"


@dataclass
class Truncation:
    """One local truncation of an array. unit: failure probability per size of a value; total, largest: of the sizes."""

    phase: str
    unit: float
    elements: int
    total: float
    largest: float


@dataclass
class Tally:
    """Every local truncation of a run, in order. waiting: the share of the first server of a pair, by its number."""

    phase: str = REST
    truncations: list[Truncation] = field(default_factory=list)
    seen: list[int] = field(default_factory=lambda: [0] * 4)
    waiting: dict[int, Any] = field(default_factory=dict)

    def add(self, result: Shares, unit: float) -> None:
        """A truncation with this result, told by every server; unit: failure probability of one split, per size of a
        value."""
        server = result.party.seat
        number = self.seen[server]
        self.seen[server] += 1
        left = Held.LEFT in result.held
        if server not in (0, 2 if left else 1):  # row shares of servers 0 and 2, or column shares of servers 0 and 1
            return
        share = result.row if left else result.column
        if number not in self.waiting:
            self.waiting[number] = np.array(share)
            return
        size = np.abs(ring.decode(ring.add(self.waiting.pop(number), share), result.dtype.frac))
        splits = 2 if result.held is Held.BOTH else 1
        largest = float(size.max(initial=0.0))
        self.truncations.append(Truncation(self.phase, splits * unit, size.size, float(size.sum()), largest))

    def sum(self, phase: str) -> float:
        """The probability that a truncation of this phase fails, with the values of this run."""
        return math.fsum(one.unit * one.total for one in self.truncations if one.phase == phase)


@contextmanager
def counting() -> Iterator[Tally]:
    """Adds up the failure probabilities of all local truncations of the fits inside."""
    tally = Tally()
    exchanged, shifted = multiply._exchanged, Shares.shifted

    def product(x: Any, data: Any, plan: multiply.Product) -> Any:
        result = yield from exchanged(x, data, plan)
        if plan.wire is not None:
            tally.add(result, 2.0 ** -(plan.dtype.span + 1 + LOCAL_FAILURE_BITS))
        elif plan.shift and plan.exact is None:
            tally.add(result, 2.0 ** (plan.dtype.frac + plan.shift - plan.dtype.bits))
        return result

    def factor(self: Shares, bits: int, dtype: RingType) -> Any:
        result = shifted(self, bits, dtype)
        tally.add(result, 2.0 ** (dtype.frac + bits - dtype.bits))
        return result

    def during(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def inside(*arguments: Any, **options: Any) -> Any:
            before, tally.phase = tally.phase, phase
            try:
                return await function(*arguments, **options)
            finally:
                tally.phase = before

        return inside

    drawn = np.random.default_rng(0)  # the same keys in every run, so that the table is the same, too
    with (
        patch("secrets.token_bytes", drawn.bytes),
        patch("secrets.token_hex", lambda count: drawn.bytes(count).hex()),
        patch.object(multiply, "_exchanged", product),
        patch.object(Shares, "shifted", factor),
        patch.object(decomposition, "eigh", during(ITERATION, decomposition.eigh)),
        patch.object(decomposition, "eigh_topk", during(ITERATION, decomposition.eigh_topk)),
        patch.object(decomposition, "is_bounded", during(VERIFICATION, decomposition.is_bounded)),
        patch.object(decomposition, "is_accurate", during(VERIFICATION, decomposition.is_accurate)),
        patch.object(
            decomposition.certificate,
            "no_eigenvalue_missing",
            during(VERIFICATION, decomposition.certificate.no_eigenvalue_missing),
        ),
    ):
        yield tally


@dataclass(eq=False)
class OneThread:
    """Four servers in one thread, as the servers of an estimator."""

    running: bool = True
    member: None = None

    def start(self) -> None:
        """They always run."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def run_job(self, job: JobSpec, chunks: Iterable[Chunk], progress: Any = None) -> Outcome:
        """See `Servers.run_job`."""
        parties, uploads = local_parties(), [JobUploads(server) for server in range(4)]
        for chunk in chunks:
            for server in range(4):
                uploads[server].add(chunk.part(server))
        running = [compute(party, job, mine) for party, mine in zip(parties, uploads, strict=True)]
        parts, traffic = run_lockstep(running)
        counters: dict[str, Any] = {"total": {"rounds": traffic.rounds}, "stages": {}}
        audit = [line.as_dict() for line in parties[0].audit]
        return Outcome(parts, Account(0.0, traffic.rounds, traffic.sent, [counters] * 4, audit))

    def erase(self, model: str) -> None:
        """Nothing is kept here."""

    def __deepcopy__(self, memo: dict[int, Any]) -> OneThread:
        return self


OTHER_DATA = 2.0
"""Values are normalised before they are truncated; other data may have larger ones than the runs that are counted, up
to this."""

ITERATIONS = decomposition.FALLBACK_ITERATIONS
"""Iterations of all-pairs in the counted runs: more than any fit took."""

LOOPS = 8
"""Maximum number of loops of topk."""

COUNTED = (12, 24)
"""Columns of the runs that are counted; those of topk have 4 times as many."""

SHOWN = (11, 50, 115, 200, 500, 1000, 2000, 5000)
"""Columns that the table is about."""

KINDS: dict[str, dict[str, Any]] = {
    "covariance": {},
    "correlation": {"standardize": True},
    "correlation, components for a fraction of the variance": {"standardize": True, "n_components": 0.9},
    "correlation, missing values as the joint mean": {"standardize": True},
}
"""Fits whose unnoticed failures are counted, by parameters of the estimator."""

MISSING = "correlation, missing values as the joint mean"


def rows(d: int, missing: bool = False) -> list[Any]:
    """Two owners' rows with a spectrum that falls geometrically to 1e-6: of all spectra of the tests the largest
    sum."""
    random = np.random.default_rng(d)
    Q, _ = np.linalg.qr(random.standard_normal((d, d)))
    X = random.standard_normal((4 * d, d)) * np.sqrt(np.geomspace(1, 1e-6, d)) @ Q.T
    if missing:
        X[random.random(X.shape) < 0.02] = np.nan
    return [open_table(part, missing="mean" if missing else "refuse") for part in (X[: 2 * d], X[2 * d :])]


def counted(d: int, missing: bool = False, **parameters: Any) -> Tally:
    """One fit of d columns."""
    with counting() as tally:
        PCA(servers=OneThread(), **parameters).fit(rows(d, missing))
    return tally


def unnoticed(few: Tally, more: Tally, d: int) -> float:
    """The probability of a failure outside iteration and verification at d columns, from two runs.

    Every truncation is bounded by its largest value in both runs, times OTHER_DATA, times its number of elements, which
    is constant or grows as d or d^2.
    """
    pairs = zip(
        *([one for one in tally.truncations if one.phase == REST] for tally in (few, more)),
        strict=True,
    )
    probability = 0.0
    for small, large in pairs:
        power = round(math.log2(large.elements / small.elements))
        elements = large.elements * max(d / COUNTED[1], 1.0) ** power
        probability += large.unit * max(small.largest, large.largest) * elements
    return OTHER_DATA * probability


def grown(few: Tally, more: Tally, phase: str, d: float) -> float:
    """The probability of a failure in a phase at d times the columns of the second run.

    A power of d, fitted to both runs and rounded up to a quarter.
    """
    first, second = few.sum(phase), more.sum(phase)
    power = math.ceil(4 * math.log2(second / first)) / 4
    return float(second * d**power)


def probabilities() -> dict[str, tuple[str, list[float]]]:
    """By part of a fit: what happens then, and the probability of a failure at all SHOWN columns."""
    found: dict[str, tuple[str, list[float]]] = {}
    noticed = "verification says no, the fall-back runs"
    for name, parameters in KINDS.items():
        few, more = (counted(d, name == MISSING, fixed_iterations=ITERATIONS, **parameters) for d in COUNTED)
        if not found:
            for phase, title in (
                (ITERATION, f"iteration, all-pairs, {ITERATIONS} iterations"),
                (VERIFICATION, VERIFICATION),
            ):
                found[title] = (noticed, [grown(few, more, phase, d / COUNTED[1]) for d in SHOWN])
        found[f"all else, {name}"] = ("the result is wrong", [unnoticed(few, more, d) for d in SHOWN])
    few, more = (counted(4 * d, n_components=10, solver="topk", fixed_iterations=LOOPS) for d in COUNTED)
    title = f"iteration, topk, ten components, {LOOPS} loops"
    found[title] = (f"{noticed} (above {decomposition.FALLBACK_MAX_COLUMNS} columns: the result is refused)", [])
    found[title][1].extend(grown(few, more, ITERATION, d / (4 * COUNTED[1])) for d in SHOWN)
    return found


def power_of_two(probability: float) -> str:
    """The power of two above it."""
    return f"2^{math.ceil(math.log2(probability))}"


def table() -> str:
    """The table of docs/reference/protocols.md, and the sentence that everything else refers to."""
    found = probabilities()
    wrong = [max(each) for each in zip(*(many for then, many in found.values() if "wrong" in then), strict=True)]
    lines = ["| what fails | " + " | ".join(f"d = {d:,}" for d in SHOWN) + " | and then |"]
    lines += ["| --- |" + " ---: |" * len(SHOWN) + " --- |"]
    for name, (then, many) in found.items():
        lines.append(f"| {name} | " + " | ".join(map(power_of_two, many)) + f" | {then} |")
    safe = [d for d, probability in zip(SHOWN, wrong, strict=True) if probability < 2.0**-40]
    said = (
        f"A wrong result of row owners that remains undetected has a probability below 2^-40 per fit up to {safe[-1]:,} columns"
        + ("." if safe[-1] == SHOWN[-1] else f", and below {power_of_two(wrong[-1])} at {SHOWN[-1]:,}.")
    )
    return "\n".join([*lines, "", said, "", passed(found)])


def passed(found: dict[str, tuple[str, list[float]]]) -> str:
    """Number of times that verification may pass a failure in the iteration without changing the sentence about wrong
    results."""
    likely = max(max(many) for name, (_, many) in found.items() if name.startswith(ITERATION))
    return (
        f"The iteration fails with a probability below {power_of_two(likely)}. If verification passes at most one such failure "
        f"in {power_of_two(2.0**40 * likely)}, this adds less than 2^-40."
    )
