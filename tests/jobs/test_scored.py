"""`ppca fetch --scores`: the receiver's rows in a report beside the result, which is still verified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.federation import MEMBERSHIP, OWNERS, RECEIVER
from harness.whole import FourServers, WholeJob
from ppca.cli.fetch import verified, write_fetched
from ppca.cli.scored import scored_path, write_scored
from ppca.federation.proposal import ProposedJob, propose
from ppca.jobs.build import pca_job
from ppca.jobs.pca import JointPCA
from ppca.member.fetching import Evidence
from ppca.owner.errors import OwnerError

COLUMNS = ("a", "b", "y")
TABLE = np.random.default_rng(8).standard_normal((90, 3)) * [3.0, 2.0, 1.0]


def save(path: Path, rows: np.ndarray, names: tuple[str, ...] = COLUMNS) -> Path:
    np.savetxt(path, rows, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
    return path


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    folder = tmp_path_factory.mktemp("scored")
    servers = FourServers(folder / "servers")
    spec = pca_job(OWNERS, COLUMNS, {RECEIVER: ["model"]}, JointPCA(components=2), federated=True, fixed=True)
    whole = WholeJob(servers, ProposedJob(propose(MEMBERSHIP.digest, "scored", spec).data))
    for owner, rows in zip(OWNERS, np.array_split(TABLE, 3), strict=True):
        assert whole.contribute(owner, save(folder / f"{owner}.csv", rows)) == [""] * 4
    whole.run()
    yield whole.evidence(RECEIVER)
    servers.close()


def test_rows_of_the_receiver_are_shown_beside_the_result(evidence: Evidence, tmp_path: Path) -> None:
    """Columns are found by name; the folder of the result has no value of a row, and passes the check."""
    mine = save(tmp_path / "mine.csv", TABLE[:7, ::-1], COLUMNS[::-1])
    result = tmp_path / "result"
    result.mkdir()
    write_fetched(result, evidence)
    path = scored_path(result)
    assert path == tmp_path / "result-scores.html"
    write_scored(evidence, mine, path)
    page = path.read_text()
    assert "mine.csv: 7 rows" in page
    assert page.count('r="2.6"') == 2 * 7
    assert "Biplot" not in (result / "report.html").read_text()
    assert verified(result, evidence)[-1].endswith("equal byte by byte")


def test_a_table_without_the_columns_is_refused(evidence: Evidence, tmp_path: Path) -> None:
    other = save(tmp_path / "other.csv", TABLE[:7, :2], COLUMNS[:2])
    with pytest.raises(OwnerError, match="'y'"):
        write_scored(evidence, other, tmp_path / "result-scores.html")
    assert not (tmp_path / "result-scores.html").exists()
