"""Connections of strangers: bounded, and one address cannot push out the others."""

from __future__ import annotations

from ppca.server.connection_limits import ConnectionLimits


def test_the_oldest_of_an_address_leaves_first() -> None:
    crowd: ConnectionLimits[int] = ConnectionLimits(10, 3)
    assert [crowd.add(number, "10.0.0.1") for number in range(5)] == [[], [], [], [0], [1]]
    assert list(crowd) == [2, 3, 4]


def test_a_flood_from_one_address_pushes_out_nobody_else() -> None:
    crowd: ConnectionLimits[str] = ConnectionLimits(8, 6)
    crowd.add("member", "10.0.0.2")
    gone = [each for number in range(1000) for each in crowd.add(f"flood {number}", "10.0.0.1")]
    assert "member" in crowd
    assert len(gone) == 1000 - 6


def test_many_addresses_lose_the_oldest_of_the_one_that_has_most() -> None:
    crowd: ConnectionLimits[int] = ConnectionLimits(4, 4)
    for number, address in enumerate(["a", "b", "b", "c"]):
        crowd.add(number, address)
    assert crowd.add(4, "d") == [1]


def test_addresses_of_one_ipv6_network_count_together() -> None:
    crowd: ConnectionLimits[int] = ConnectionLimits(10, 2)
    for number in range(2):
        assert crowd.add(number, f"2001:db8::{number}") == []
    assert crowd.add(2, "2001:db8::ffff:1") == [0]
    assert crowd.add(3, "2001:db8:0:1::1") == []
    assert crowd.add(4, "::ffff:10.0.0.1") == []
    assert crowd.add(5, "10.0.0.1") == []
    assert crowd.add(6, "10.0.0.1") == [4]


def test_removing_twice_is_harmless() -> None:
    crowd: ConnectionLimits[int] = ConnectionLimits(2, 2)
    crowd.add(1, "a")
    assert crowd.remove(1)
    assert not crowd.remove(1)
    assert len(crowd) == 0
