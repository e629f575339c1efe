"""Rounds: whatever is sent arrives, for every size and pattern, and is counted to the byte."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from harness.four_servers import SERVERS, MakeMeshes, Servers, exchange, run, succeed
from ppca.transport import FrameError, Mesh, TransportError
from ppca.transport.frames import HEADER_SIZE

SIZES = [0, 1, 7, 8, 24, 1000, 8191, 8192, 8193, 16384, 65536, 70001, 3 << 20]


def content(sender: int, receiver: int, step: int, size: int) -> np.ndarray:
    return np.random.default_rng([sender, receiver, step]).integers(0, 256, size, np.uint8)


def peers_of(mesh: Mesh) -> list[int]:
    return [peer for peer in SERVERS if peer != mesh.seat]


def test_every_size_arrives_from_every_peer(meshes: list[Mesh]) -> None:
    def body(mesh: Mesh) -> None:
        for step, size in enumerate(SIZES):
            assert mesh.step == step
            received = exchange(
                mesh,
                {peer: [content(mesh.seat, peer, step, size)] for peer in peers_of(mesh)},
                dict.fromkeys(peers_of(mesh), size),
            )
            assert sorted(received) == peers_of(mesh)
            for peer, payload in received.items():
                assert bytes(payload) == content(peer, mesh.seat, step, size).tobytes()

    succeed(meshes, body)


@pytest.mark.parametrize("size", [16, 8192, 16384, 1 << 20])
def test_payloads_are_fresh_writable_and_aligned(meshes: list[Mesh], size: int) -> None:
    def body(mesh: Mesh) -> None:
        mate = mesh.seat ^ 1
        arrays = []
        for fill in (1, 2):
            received = exchange(mesh, {mate: [np.full(size, fill, np.uint8)]}, {mate: size})
            array = np.frombuffer(received[mate], np.uint64)
            assert array.ctypes.data % 16 == 0
            assert array.flags.writeable
            arrays.append(array)
        assert (arrays[0] == 0x0101010101010101).all()
        arrays[0][:] = 0
        assert (arrays[1] == 0x0202020202020202).all()

    succeed(meshes, body)


def test_sent_buffers_may_be_reused_at_once(meshes: list[Mesh]) -> None:
    def body(mesh: Mesh) -> None:
        mate = mesh.seat ^ 2
        buffer = np.empty(1 << 20, np.uint8)
        for step in range(5):
            buffer[:] = step
            outgoing = {mate: [buffer]}
            received = exchange(mesh, outgoing, {mate: buffer.nbytes})
            buffer[:] = 255
            assert (np.frombuffer(received[mate], np.uint8) == step).all()

    succeed(meshes, body)


def test_many_buffers_of_any_type_make_one_frame(meshes: list[Mesh]) -> None:
    def body(mesh: Mesh) -> None:
        mate = mesh.seat ^ 1
        matrix = np.arange(12, dtype=np.uint64).reshape(3, 4)
        kinds = [b"abc", bytearray(b"defg"), memoryview(b"hi"), matrix, np.empty((0, 5)), np.array(1.5), matrix[1:]]
        expected = b"".join(
            np.asarray(kind).tobytes() if isinstance(kind, np.ndarray) else bytes(kind) for kind in kinds
        )
        received = exchange(mesh, {mate: kinds}, {mate: len(expected)})
        assert bytes(received[mate]) == expected
        thousands = [np.full(33, i, np.uint16) for i in range(3000)]
        received = exchange(mesh, {mate: thousands}, {mate: 66 * 3000})
        assert bytes(received[mate]) == b"".join(part.tobytes() for part in thousands)
        assert mesh.stats.total().messages_sent == 2

    succeed(meshes, body)


def test_a_strided_array_is_refused(meshes: list[Mesh]) -> None:
    with pytest.raises(ValueError, match=r"server 0 to server 1 in step 0: only C-contiguous buffers"):
        exchange(meshes[0], {1: [np.arange(10)[::2]]}, {})


def test_random_sizes_and_uneven_patterns(meshes: list[Mesh]) -> None:
    """Any subset of the twelve directed links talks in a round: silent peers, one-way rounds, fast peers ahead."""
    plan = random.Random(7)
    rounds = []
    for _ in range(300):
        pattern = {}
        for sender in SERVERS:
            for receiver in SERVERS:
                if sender != receiver and plan.random() < 0.4:
                    pattern[sender, receiver] = plan.choice([0, 1, plan.randrange(300), plan.randrange(30000)])
        rounds.append(pattern)

    def body(mesh: Mesh) -> None:
        pauses = random.Random(mesh.seat)
        for step, pattern in enumerate(rounds):
            if pauses.random() < 0.02:
                time.sleep(0.005)
            outgoing = {r: [content(s, r, step, size)] for (s, r), size in pattern.items() if s == mesh.seat}
            incoming = {s: size for (s, r), size in pattern.items() if r == mesh.seat}
            for sender, payload in exchange(mesh, outgoing, incoming).items():
                assert bytes(payload) == content(sender, mesh.seat, step, incoming[sender]).tobytes()

    succeed(meshes, body)


def test_a_peer_may_run_ahead_and_close(meshes: list[Mesh]) -> None:
    """Seat 0 sends three rounds, more than a small buffer holds, and ends before its peers have read the first."""

    def body(mesh: Mesh) -> None:
        if mesh.seat == 0:
            exchange(mesh, {}, {})
            for size in (50_000, 10, 70_000):
                exchange(mesh, {1: [bytes([size % 251]) * size]}, {})
            mesh.close()
        elif mesh.seat == 1:
            exchange(mesh, {}, {2: 1})
            for size in (50_000, 10, 70_000):
                assert bytes(exchange(mesh, {}, {0: size})[0]) == bytes([size % 251]) * size
        elif mesh.seat == 2:
            time.sleep(0.2)
            exchange(mesh, {1: [b"x"]}, {})

    succeed(meshes, body)


def test_full_duplex_64_megabytes(grid: Servers) -> None:
    """Both ends send far more than the kernel buffers before either reads."""
    meshes = grid.connect(seats=SERVERS)
    size = 64 << 20

    def body(mesh: Mesh) -> None:
        mate = mesh.seat ^ 1
        if mesh.seat < 2:
            half = np.full(size // 2, mesh.seat, np.uint8)
            received = np.frombuffer(exchange(mesh, {mate: [half, half]}, {mate: size})[mate], np.uint8)
            assert received.min() == received.max() == mate

    succeed(meshes, body)
    for mesh in meshes:
        mesh.close()


def test_full_duplex_with_all_peers(make_meshes: MakeMeshes) -> None:
    def body(mesh: Mesh) -> None:
        data = np.full(6 << 20, mesh.seat, np.uint8)
        received = exchange(mesh, {p: [data] for p in peers_of(mesh)}, dict.fromkeys(peers_of(mesh), data.nbytes))
        for peer, payload in received.items():
            array = np.frombuffer(payload, np.uint8)
            assert array.min() == array.max() == peer

    succeed(make_meshes(), body)


def test_counting_by_stage_is_exact(meshes: list[Mesh]) -> None:
    def body(mesh: Mesh) -> None:
        row, column = mesh.seat ^ 1, mesh.seat ^ 2
        exchange(mesh, {row: [b"1"]}, {row: 1})
        with mesh.stage("outer"):
            exchange(mesh, {row: [b"22"], column: [b"333", b"4444"]}, {row: 2, column: 7})
            with mesh.stage("inner"):
                exchange(mesh, {}, {})
                exchange(mesh, {column: []}, {column: 0})
            exchange(mesh, {row: [bytes(10_000)]}, {row: 10_000})
        exchange(mesh, {row: [b"1"]}, {row: 1})
        mesh.stage("last")
        exchange(mesh, {row: [b"55555"]}, {row: 5})
        stages = mesh.stats.stages
        assert [(name, s.rounds, s.messages_sent, s.bytes_sent) for name, s in stages.items()] == [
            ("", 2, 2, 2),
            ("outer", 2, 3, 10_009),
            ("inner", 2, 1, 0),
            ("last", 1, 1, 5),
        ]
        assert stages["outer"].sent_to[row] == stages["outer"].received_from[row] == 10_002
        assert stages["outer"].sent_to[column] == stages["outer"].received_from[column] == 7
        total = mesh.stats.total()
        assert (total.rounds, total.bytes_sent, total.bytes_received) == (7, 10_016, 10_016)
        assert total.messages_received == 7
        assert total.header_bytes_sent == 7 * HEADER_SIZE
        assert total.seconds > 0
        assert mesh.step == 7
        report = mesh.stats.as_dict()
        assert report["total"]["bytes_sent"] == 10_016
        assert list(report["stages"]) == ["", "outer", "inner", "last"]
        assert report["stages"]["inner"]["rounds"] == 2

    succeed(meshes, body)


def test_too_large_is_refused_before_allocating(make_meshes: MakeMeshes) -> None:
    meshes = make_meshes(max_payload=1000)
    with pytest.raises(FrameError, match=r"server 0 refuses a payload of 1001 bytes with server 1 in step 0"):
        exchange(meshes[0], {1: [bytes(1001)]}, {})
    with pytest.raises(FrameError, match="the limit is 1000 bytes"):
        exchange(meshes[3], {}, {2: 1 << 60})


def test_an_ended_mesh_says_so(meshes: list[Mesh]) -> None:
    meshes[0].close()
    with pytest.raises(TransportError, match=r"mesh of server 0 cannot be used in step 0: it was closed"):
        exchange(meshes[0], {}, {})
    meshes[0].close()
    meshes[0].abort("twice is harmless")


def test_the_harness_reports_errors_by_server(meshes: list[Mesh]) -> None:
    def body(mesh: Mesh) -> int:
        if mesh.seat == 2:
            raise KeyError("broken")
        return mesh.seat

    results = run(meshes, body)
    assert results[:2] == [0, 1]
    assert isinstance(results[2], KeyError)
