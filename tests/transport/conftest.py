"""Fixtures: four meshes of each kind, connected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.four_servers import TIMEOUT, MakeMeshes, Rogue, Servers
from harness.memory import memory_meshes
from harness.pinned import Members
from ppca.transport import Mesh


@pytest.fixture
def grid() -> Iterator[Servers]:
    grid = Servers()
    yield grid
    grid.close()


@pytest.fixture(scope="session")
def members() -> Members:
    return Members()


@pytest.fixture(params=["memory", "tcp", "tls"])
def make_meshes(request: pytest.FixtureRequest) -> Iterator[MakeMeshes]:
    """A function of the exchange timeout that makes four connected meshes of the kind under test."""
    made: list[Mesh] = []
    clusters: list[Servers] = []

    def make(timeout: float = TIMEOUT, **limits: int) -> list[Mesh]:
        if request.param == "memory":
            meshes = memory_meshes(timeout, **limits)
        else:
            own = request.getfixturevalue("members").own() if request.param == "tls" else None
            clusters.append(Servers())
            meshes = clusters[-1].connect(own=own, exchange_timeout=timeout, **limits)
            assert all(isinstance(mesh, Mesh) for mesh in meshes), meshes
        made.extend(meshes)
        return meshes

    yield make
    for mesh in made:
        mesh.close()
    for servers in clusters:
        servers.close()


@pytest.fixture
def meshes(make_meshes: MakeMeshes) -> list[Mesh]:
    return make_meshes()


@pytest.fixture
def rogue() -> Iterator[Rogue]:
    rogue = Rogue()
    yield rogue
    rogue.close()
