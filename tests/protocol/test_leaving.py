"""What leaves the sharing: openings, results on their way to a receiver; and inputs on their way in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from harness.privacy import SECRET, assert_uniform, everything
from ppca.native import ring
from ppca.protocol import (
    Held,
    InconsistentShares,
    InputRefused,
    OpeningRefused,
    SecretArray,
    local_parties,
    make_type,
    run_lockstep,
    share,
    together,
    unseal,
)
from ppca.protocol.inputs import receive
from ppca.protocol.opening import limits, randomize_below

# -- openings --------------------------------------------------------------------------------------------------------


def test_audit_lists_every_opening_and_nothing_else() -> None:
    async def program(x: Any, y: Any) -> Any:
        await everything(x, y)
        bit = await (await (x < y)).open(why="to stop early", what="bit of convergence")
        assert bit.tolist() == [1, 0, 0, 1]
        return [(await (x * y)).reveal("analyst", why="the result", what="products"), await y.sum().open(why="a total")]

    parties = local_parties()
    packets = [share(values) for values in ([1.0, 2.0, 3.0, 4.0], [4.0, 0.5, 3.0, 9.0])]

    async def whole(seat: int) -> Any:
        return await program(*(SecretArray.from_packet(parties[seat], packet[seat]) for packet in packets))

    results, _ = run_lockstep([whole(seat) for seat in range(4)])
    assert unseal([result[0] for result in results]).tolist() == [4.0, 1.0, 9.0, 36.0]
    expected = [
        (1, "shuffled ranks", (4,), "servers", "sort"),
        (2, "shuffled ranks", (4,), "servers", "sort"),
        (3, "bit of convergence", (4,), "servers", "to stop early"),
        (4, "products", (4,), "analyst", "the result"),
        (5, "value", (), "servers", "a total"),
    ]
    for party in parties:
        assert [(o.number, o.what, o.shape, o.to, o.why) for o in party.audit] == expected
        assert party.audit[3].as_dict() == {
            "number": 4, "what": "products", "shape": [4], "to": "analyst", "why": "the result",
        }  # fmt: skip


ALLOWED = [{"what": "bit", "to": "servers", "most": 2}, {"what": "sum", "to": "analyst", "most": 1}]


def limited(program: Any) -> tuple[Any, Any, list[Any]]:
    """Runs a program on a secret under ALLOWED; what it returned at seat 0, its traffic, and the audit."""
    parties, packets = local_parties(), share([1.0, 2.0])
    for party in parties:
        party.openings = limits(ALLOWED)

    async def whole(seat: int) -> Any:
        return await program(SecretArray.from_packet(parties[seat], packets[seat]))

    results, traffic = run_lockstep([whole(seat) for seat in range(4)])
    assert all(
        [line.as_dict() for line in party.audit] == [line.as_dict() for line in parties[0].audit] for party in parties
    )
    return results[0], traffic, parties[0].audit


def test_listed_openings_pass_as_often_as_listed() -> None:
    async def program(x: Any) -> Any:
        first = await x.open(what="bit", why="test")
        again = await x.open(what="bit", why="test")
        x.sum().reveal("analyst", what="sum", why="test")
        return [first.tolist(), again.tolist()]

    found, traffic, audit = limited(program)
    assert found == [[1.0, 2.0], [1.0, 2.0]]
    assert traffic.rounds == 2
    assert [line.what for line in audit] == ["bit", "bit", "sum"]


@pytest.mark.parametrize(
    ("what", "to", "times", "cause"),
    [
        ("bit", "servers", 3, "'bit' to 'servers' was opened as often as this job allows"),
        ("other", "servers", 1, "'other' to 'servers' is not in the list"),
        ("sum", "servers", 1, "'sum' to 'servers' is not in the list"),
        ("bit", "analyst", 1, "'bit' to 'analyst' is not in the list"),
        ("sum", "somebody", 1, "'sum' to 'somebody' is not in the list"),
        ("sum", "analyst", 2, "'sum' to 'analyst' was opened as often"),
    ],
)
def test_other_openings_are_refused_before_anything_is_sent(what: str, to: str, times: int, cause: str) -> None:
    async def program(x: Any) -> Any:
        for done in range(times):
            try:
                if to == "servers":
                    await x.open(what=what, why="test")
                else:
                    x.reveal(to, what=what, why="test")
            except OpeningRefused as refused:
                return done, str(refused)
        return None

    found, traffic, audit = limited(program)
    assert found is not None
    assert found[0] == times - 1
    assert cause in found[1]
    assert "propose a job that lists it" in found[1]
    assert traffic.rounds == (times - 1 if to == "servers" else 0)
    assert len(audit) == times - 1


@pytest.mark.parametrize("wrong", [[*ALLOWED, ALLOWED[0]], [{**ALLOWED[0], "most": 0}], [{**ALLOWED[0], "most": True}]])
def test_a_wrong_list_of_openings_is_refused(wrong: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="Correct the job"):
        limits(wrong)


@pytest.mark.parametrize("why", ["", "   "])
def test_an_opening_without_a_reason_is_refused(why: str) -> None:
    async def to_servers(x: Any) -> None:
        await x.open(why=why)

    async def to_client(x: Any) -> None:
        x.reveal(why=why)

    for program in (to_servers, to_client):
        messages: list[Any] = []
        with pytest.raises(ValueError, match="needs a reason"):
            run(program, [1.0], tap=lambda *message, log=messages: log.append(message))
        assert not messages
    with pytest.raises(TypeError):
        run(lambda x: x.open(), [1.0])


def test_no_message_carries_the_secret_without_an_opening() -> None:
    # The encodings are 16 or 8 bytes long: a chance hit in some 10^5 bytes has probability below 1e-14.
    secrets = np.array([SECRET, -1234.5678, 0.1, 77.0])

    async def quiet(x: Any, y: Any) -> None:
        await together(x * y, x < y, x == y, x.rsqrt(), x.shuffle(), x.truncate(7), x.normalise(), y / x)
        await (x.reshape(2, 2) @ y.reshape(2, 2))
        await x.ranks()

    messages: list[bytes] = []
    run(quiet, secrets, secrets[::-1], tap=lambda s, r, message: messages.append(message.tobytes()))
    everything_sent = b"|".join(messages)
    for value in secrets:
        whole = round(value * 2**40)
        assert (whole % 2**128).to_bytes(16, "little") not in everything_sent
        assert (abs(whole) % 2**64).to_bytes(8, "little") not in everything_sent
        assert np.float64(value).tobytes() not in everything_sent
    assert bytes(8) not in everything_sent


def test_openings_do_carry_it() -> None:
    # The control of the test above: with an opening each row's server has both row shares.
    async def loud(x: Any) -> Any:
        return await x.open(why="control")

    outcome = run(loud, np.array([SECRET]))
    assert outcome.value.tolist() == [SECRET]
    assert [len(audit) for audit in outcome.audits] == [1, 1, 1, 1]


def test_a_single_part_of_a_result_is_uniform() -> None:
    sealed: dict[int, list[bytes]] = {seat: [] for seat in range(4)}

    async def program(x: Any) -> None:
        sealed[x.party.seat].append(x.reveal("client", why="test").payload)

    for _ in range(20):
        run(program, np.full(50, SECRET))
    for seat in (0, 2):
        assert_uniform(np.frombuffer(b"".join(sealed[seat]), np.uint8), f"seat {seat}", checks=2)
    assert all(len(payload) == 32 for seat in (1, 3) for payload in sealed[seat])


# -- results on their way to a receiver, inputs on their way in ------------------------------------------------------


def sealed_result() -> list[Any]:
    parties, packets = local_parties(), share([SECRET, -1.0])

    async def whole(seat: int) -> Any:
        return SecretArray.from_packet(parties[seat], packets[seat]).reveal("client", why="test")

    return run_lockstep([whole(seat) for seat in range(4)])[0]


def test_unseal_takes_untouched_parts() -> None:
    assert unseal(sealed_result()).tolist() == [SECRET, -1.0]


@pytest.mark.parametrize("seat", range(4))
def test_unseal_refuses_tampered_parts(seat: int) -> None:
    for position in (0, -1):
        parts = sealed_result()
        payload = bytearray(parts[seat].payload)
        payload[position] ^= 1
        parts[seat] = replace(parts[seat], payload=bytes(payload))
        with pytest.raises(InconsistentShares, match=f"servers of row {seat // 2} disagree"):
            unseal(parts)
    parts = sealed_result()
    parts[seat] = replace(parts[seat], payload=parts[seat].payload[:-1])
    with pytest.raises(InconsistentShares):
        unseal(parts)


def test_unseal_refuses_parts_that_do_not_belong_together() -> None:
    parts = sealed_result()
    with pytest.raises(InconsistentShares):
        unseal(parts[:3])
    with pytest.raises(InconsistentShares):
        unseal([parts[2], parts[1], parts[0], parts[3]])
    for change in ({"shape": (1, 2)}, {"to": "somebody else"}, {"dtype": make_type(128, 20)}):
        with pytest.raises(InconsistentShares, match="different"):
            unseal([*parts[:3], replace(parts[3], **change)])


def test_receive_refuses_wrong_sizes() -> None:
    packets = share([1.0, 2.0])
    for seat in range(4):
        row, column = divmod(seat, 2)
        assert receive(packets[seat], row, column).shape == (2, 2, 2)
        for split in ("row", "column"):
            for change in (lambda payload: payload[:-1], lambda payload: payload + b"\0", lambda payload: b""):
                wrong = replace(packets[seat], **{split: change(getattr(packets[seat], split))})
                with pytest.raises(InputRefused, match=f"server \\({row}, {column}\\)"):
                    receive(wrong, row, column)
    with pytest.raises(InputRefused):
        receive(packets[0], 1, 1)  # a packet of another seat: a key where an array is due


# -- random lower bits -----------------------------------------------------------------------------------------------


def randomized(values: Any, frac: int = 40) -> list[Any]:
    """Return the row shares (4 servers) of products with 80 fractional bits, with random bits below 2^-frac."""

    async def program(x: Any, y: Any) -> Any:
        return randomize_below(await x.mul(y, frac=80, only=Held.LEFT), frac).row

    return list(run_all(program, [np.asarray(values, float), np.ones(len(values))]))


def run_all(program: Any, inputs: list[Any]) -> list[Any]:
    parties, packets = local_parties(), [share(values) for values in inputs]

    async def whole(seat: int) -> Any:
        return await program(*(SecretArray.from_packet(parties[seat], packet[seat]) for packet in packets))

    return run_lockstep([whole(seat) for seat in range(4)])[0]


@pytest.mark.parametrize("frac", [17, 40, 60])
def test_values_with_random_lower_bits_are_right(frac: int) -> None:
    values = np.r_[np.random.default_rng(0).normal(size=500) * 2.0 ** np.arange(-20, 5, 0.05), 0.0]
    shares = randomized(values, frac)
    assert np.array_equal(shares[0], shares[1])
    assert np.array_equal(shares[2], shares[3])
    found = ring.decode(ring.add(shares[0], shares[2]), 80)
    assert np.abs(found - np.round(values * 2.0**40) / 2.0**40).max() <= 2.0**-frac


def test_lower_bits_are_uniform_for_a_receiver_together_with_one_server() -> None:
    """All values are equal. The 40 lower bits of the sum are uniform, also without the noise of one row."""
    values = np.full(4096, 1.0 + 2.0**-35)
    opened = [ring.add(shares[0], shares[2])[:, 0] for shares in (randomized(values), randomized(values))]
    low = opened[0] & np.uint64((1 << 40) - 1)
    assert_uniform((low >> np.uint64(32)).astype(np.uint8), "lower bits")
    assert len(np.unique(low)) > 4090
    assert not np.array_equal(opened[0], opened[1])


@pytest.mark.parametrize("frac", [80, 16, 81])
def test_bits_that_cannot_be_randomized(frac: int) -> None:
    with pytest.raises(ValueError, match="cannot randomize"):
        randomized([1.0], frac)
