"""One job.toml, drafted by `ppca fit`, run by servers of a federation and by local servers.

Both open the same, and get the same values but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from harness.federation import MEMBERSHIP, OWNERS, RECEIVER
from harness.lockstep import LockstepServers
from harness.whole import GROUP_KEY, FourServers, WholeJob
from ppca.cli.main import app
from ppca.federation.membership import write_signatures
from ppca.federation.proposal import ProposedJob
from ppca.jobs.registry import openings
from ppca.member.contributing import table_of
from ppca.owner.contribute import Source, contribution
from ppca.owner.tables.options import DEFAULTS
from ppca.receiver.unsealing import unsealed

TOLERANCE = 1e-6
"""Relative to the largest value of a part, as for recorded jobs: two runs of one job differ by up to 4e-8."""

ROWS, PEOPLE, WIDE = (30, 4), 60, (3, 120)
"""Rows and columns of each row owner; individuals of column owners; rows and columns of each row owner of a wide table."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourServers]:
    found = FourServers(tmp_path_factory.mktemp("servers"))
    yield found
    found.close()


def row_owners(folder: Path, rows: int, columns: int) -> dict[str, Path]:
    """Write a table for each owner: different rows of the same columns."""
    random = np.random.default_rng(3)
    mixing = random.standard_normal((columns, columns)) * np.geomspace(4, 0.5, columns)[:, None]
    found = {owner: folder / f"{owner}.csv" for owner in OWNERS}
    for path in found.values():
        table = random.standard_normal((rows, columns)) @ mixing + 5
        header = ",".join(f"x{number}" for number in range(columns))
        np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.17g")
    return found


def column_owners(folder: Path) -> dict[str, Path]:
    """Write a table for each owner: two columns of its own, for most of the same individuals in another order."""
    random = np.random.default_rng(5)
    values = random.standard_normal((PEOPLE, 6)) @ (random.standard_normal((6, 6)) * np.geomspace(4, 0.5, 6)[:, None])
    found = {owner: folder / f"{owner}.csv" for owner in OWNERS}
    for number, (owner, path) in enumerate(found.items()):
        people = random.permutation(PEOPLE)[: PEOPLE - number]
        own = values[people, 2 * number : 2 * number + 2]
        lines = [f"P{person},{first:.17g},{second:.17g}" for person, (first, second) in zip(people, own, strict=True)]
        path.write_text("\n".join([f"id,{owner}-1,{owner}-2", *lines]) + "\n")
    return found


def drafted(folder: Path, files: dict[str, Path], options: list[str]) -> ProposedJob:
    """Return the job of the job.toml that `ppca fit --draft` writes."""
    federation = folder / "federation.toml"
    federation.write_bytes(MEMBERSHIP.data)
    write_signatures(federation.with_suffix(".sigs"), MEMBERSHIP.signatures)
    common = ["--owner", ",".join(OWNERS), "--receiver", RECEIVER, "--receiver", "spare:variances", "--expires", "7d"]
    named = ["--name", folder.name, "--federation", str(federation), "--draft", str(folder / "job.toml")]
    done = CliRunner().invoke(app, ["fit", *map(str, files.values()), *common, *named, *options])
    assert done.exit_code == 0, done.output
    return ProposedJob.load(folder / "job.toml")


def in_federation(made: ProposedJob, servers: FourServers, files: dict[str, Path], id: str | None) -> Any:
    whole = WholeJob(servers, made)
    for owner, path in files.items():
        assert whole.contribute(owner, path, id) == [""] * 4
    return whole.run()["to"], whole.audit


def on_local_servers(made: ProposedJob, files: dict[str, Path], id: str | None) -> Any:
    here, data = LockstepServers(), made.spec.data
    tables = [table_of(data, owner, path, id, DEFAULTS, 1) for owner, path in files.items()]
    chunks = [
        chunk
        for number, table in enumerate(tables)
        for chunk in contribution(data, number, Source(table), lambda: GROUP_KEY)
    ]
    found = here.run_job(made.spec, chunks)
    return unsealed(found.parts)["to"], here.audits[-1][0]


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("rows", ["-k", "2"]),
        ("rows", ["-k", "2", "--standardize"]),
        ("columns", ["--vertical", "--id", "id", "-k", "3"]),
        ("wide-rows", ["--wide", "-k", "2"]),
    ],
)
def test_the_same_job_locally_and_in_a_federation(
    form: str, options: list[str], servers: FourServers, tmp_path: Path
) -> None:
    id = "id" if form == "columns" else None
    files = column_owners(tmp_path) if id else row_owners(tmp_path, *(WIDE if form == "wide-rows" else ROWS))
    made = drafted(tmp_path, files, options)
    assert made.spec.data.form == form
    there, audit = in_federation(made, servers, files, id)
    here, local = on_local_servers(made, files, id)
    said = [[(line["what"], line["to"], line["shape"]) for line in lines] for lines in (audit, local)]
    assert said[0] == said[1]
    allowed = {(line.what, line.to) for line in openings(made.spec)}
    assert {(what, to) for what, to, _ in said[0]} == allowed
    assert {name: set(parts) for name, parts in here.items()} == {name: set(parts) for name, parts in there.items()}
    for name, parts in here.items():
        for part, value in parts.items():
            mine, other = np.abs(np.asarray(value, float)), np.abs(np.asarray(there[name][part], float))
            np.testing.assert_allclose(mine, other, atol=TOLERANCE * max(1e-300, float(mine.max())), err_msg=part)
