"""What one server sees, which masks are used, and what leaves the sharing.

A view is all a seat receives in a run, and its initial shares. Over many runs with the SAME secret its bytes must be uniform.
Each statistical test shares its false-alarm probability of 1e-6 among the checks it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lockstep import run
from scipy.stats import chi2, norm

from ppca.native import kernels
from ppca.protocol import (
    InconsistentShares,
    InputRefused,
    MaskReuseError,
    Pending,
    SecretArray,
    local_parties,
    make_type,
    run_lockstep,
    share,
    together,
    unseal,
)
from ppca.protocol.inputs import receive
from ppca.protocol.party import KEY_BYTES, Stream
from ppca.protocol.reshare import reshare

FALSE_ALARM = 1e-6
COPIES = 400
SECRET = 5.25


# -- views -----------------------------------------------------------------------------------------------------------


def assert_uniform(view: np.ndarray, label: str, checks: int = 1) -> None:
    """Chi-square of the byte (or, if there are few, half-byte) histogram, both tails, and a z-test of each of the eight bits.

    False alarms: FALSE_ALARM / checks, a third for each.
    """
    n, alarm = view.size, FALSE_ALARM / checks / 3
    assert n >= 400, f"{label}: {n} bytes are too few to judge"
    symbols, cells = (view, 256) if n >= 8192 else (np.concatenate([view & 15, view >> 4]), 16)
    expected = symbols.size / cells  # at least 32 per cell, so that the chi-square tail is right
    statistic = float(((np.bincount(symbols, minlength=cells) - expected) ** 2 / expected).sum())
    assert chi2.ppf(alarm, cells - 1) < statistic < chi2.isf(alarm, cells - 1), f"{label}: histogram"
    ones = np.unpackbits(view.reshape(-1, 1), axis=1).sum(axis=0)
    assert np.all(np.abs(ones - n / 2) < norm.isf(alarm / 16) * np.sqrt(n / 4)), f"{label}: bits are not balanced"


def views(program: Callable[..., Any], *inputs: Any, dtypes: Any = (), runs: int = 1) -> list[list[np.ndarray]]:
    """For each seat its initial shares and every message it received."""
    seen: list[list[np.ndarray]] = [[] for _ in range(4)]

    async def watched(*arrays: SecretArray) -> None:
        for array in arrays:
            seen[array.party.seat].append(array.data.reshape(-1).view(np.uint8).copy())
        await program(*arrays)

    for _ in range(runs):
        run(watched, *inputs, dtypes=dtypes, tap=lambda _, receiver, message: seen[receiver].append(message.copy()))
    return seen


async def reshare_both_rows(x: SecretArray) -> None:
    """Row 0 reshares x, row 1 too."""
    n = len(x)
    halves = slice(0, n), slice(n, 2 * n)
    own, theirs = halves if x.party.row == 0 else halves[::-1]
    await Pending(reshare(x.party, x.data[1], np.empty((2, 2 * n, x.dtype.limbs), np.uint64), own, theirs))


def fixed(values: Any = SECRET) -> np.ndarray:
    return np.full(COPIES, values)


async def awaited(pending: Any) -> Any:
    return await pending


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "shares": (lambda x: awaited(together()), (fixed(),), ()),
    "mul": (lambda x, y: awaited(x * y), (fixed(), fixed(-3.5)), ()),
    "mul by zero": (lambda x, y: awaited(x * y), (fixed(0.0), fixed(0.0)), ()),
    "matmul": (lambda x, y: awaited(x @ y), (fixed().reshape(20, 20), fixed(0.0).reshape(20, 20)), ()),
    "square": (lambda x: awaited(x.square()), (fixed(),), ()),
    "lt": (lambda x, y: awaited(x < y), (fixed(), fixed(7.0)), ()),
    "lt of equals": (lambda x: awaited(x < x), (fixed(0.0),), ()),
    "eq": (lambda x, y: awaited(x == y), (fixed(), fixed()), ()),
    "sign": (lambda x: awaited(x.sign()), (fixed(0.0),), ()),
    "lookup": (lambda x: awaited(x.lookup([1.0, 2.0], [1.0, 0.0, 0.0])), (fixed(),), ()),
    "normalise": (lambda x: awaited(x.normalise()), (fixed(),), ()),
    "coarse power": (lambda x: awaited(x.coarse_power(-0.5, 2.0**-20)), (fixed(),), ()),
    "triangle": (lambda x, y: awaited(x.matmul_upper(y)), (fixed().reshape(20, 20), fixed(0.0).reshape(20, 20)), ()),
    "rsqrt": (lambda x: awaited(x.rsqrt()), (fixed(),), ()),
    "rsqrt of zero": (lambda x: awaited(x.rsqrt()), (fixed(0.0),), ()),
    "reciprocal": (lambda x: awaited(x.reciprocal(signed=True)), (fixed(-SECRET),), ()),
    "shuffle": (lambda x: awaited(x.shuffle()), (fixed(),), ()),
    "reshare": (reshare_both_rows, (fixed(),), ()),
    "truncate": (lambda x: awaited(x.truncate(20)), (fixed(0.0),), ()),
    "truncate negative": (lambda x: awaited(x.truncate(20)), (fixed(-SECRET),), ()),
    "extend": (lambda x: awaited(x.extend()), (fixed(-SECRET),), (make_type(64, 20),)),
    "mul 64": (lambda x, y: awaited(x.mul(y, exact=True)), (fixed(0.0), fixed()), (make_type(64, 20),) * 2),
    "where": (lambda x: awaited(x.where(3.5, x)), (fixed(1),), ()),
    "abs": (lambda x: awaited(abs(x)), (fixed(-SECRET),), ()),
}


MATRICES = ("matmul", "triangle")


@pytest.mark.parametrize("name", CASES)
def test_one_servers_view_is_uniform(name: str) -> None:
    program, inputs, dtypes = CASES[name]
    seen = views(program, *inputs, dtypes=dtypes, runs=2)
    for seat in range(4):
        assert_uniform(np.concatenate(seen[seat]), f"{name}, seat {seat}", checks=4)


def assert_unrelated(view: list[np.ndarray], label: str, seats: int = 4) -> None:
    """Sums and differences of any two parts of a view that have the same number of ring elements are uniform, too."""
    words = [part.view(np.uint64) for part in view if part.size % 8 == 0 and part.size >= 400]
    pairs = [(a, b) for i, a in enumerate(words) for b in words[:i] if a.size == b.size]
    for a, b in pairs:
        for mixed in (a + b, a - b):
            assert_uniform(mixed.view(np.uint8), label, checks=2 * len(pairs) * seats)


@pytest.mark.parametrize("name", CASES)
def test_no_two_parts_of_a_view_are_related(name: str) -> None:
    # Uniform parts could still add up to the secret, or be masked alike: then some sum or difference would be constant.
    program, inputs, dtypes = CASES[name]
    if name not in MATRICES:
        inputs = tuple(np.asarray(values)[:100] for values in inputs)
    seen = views(program, *inputs, dtypes=dtypes)
    for seat in range(4):
        splits = [half for part in seen[seat][: len(inputs)] for half in np.split(part, 2)]
        assert_unrelated(splits + seen[seat][len(inputs) :], f"{name}, seat {seat}")


def test_the_tests_notice_missing_and_repeated_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    # The control: without masks a reshare hands over shares the receiver knows; with the same masks twice messages repeat.
    class Silent:
        def __getattr__(self, name: str) -> Any:
            return getattr(kernels, name)

        @staticmethod
        def reshare_out(data: np.ndarray, start: int, message: np.ndarray, pieces: np.ndarray, *_: Any) -> None:
            message[...] = pieces  # what is left when the masks are zero

    with monkeypatch.context() as patch:
        patch.setattr("ppca.protocol.reshare.kernels", Silent())
        seen = views(reshare_both_rows, fixed())
    with pytest.raises(AssertionError, match=r"histogram|balanced"):
        assert_unrelated(np.split(seen[0][0], 2) + seen[0][1:], "unmasked")

    async def repeated(x: Any) -> None:
        await (x * x)
        x.party._ops = 0
        await (x * x)

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "claim", lambda *_: None)
        seen = views(repeated, fixed())
    with pytest.raises(AssertionError, match=r"histogram|balanced"):
        assert_unrelated(seen[0][1:], "repeated")


@pytest.mark.parametrize("name", CASES)
def test_each_message_position_is_uniform_over_runs(name: str) -> None:
    # The same message of the same protocol over 30 runs with one secret: a constant or biased word would show. With 256
    # elements each dealer masks 64, so that no packed message ends in padding, and packed bits are enough to judge.
    program, inputs, dtypes = CASES[name]
    small = [np.asarray(values).reshape(-1)[:256] for values in inputs]
    if name in MATRICES:
        small = [small[0][:32].reshape(4, 8), small[1][:32].reshape(8, 4)]
    repeats = 30
    seen = views(program, *small, dtypes=dtypes, runs=repeats)
    for seat in range(4):
        per_run = len(seen[seat]) // repeats
        for position in range(per_run):
            column = np.concatenate([seen[seat][i * per_run + position] for i in range(repeats)])
            if column.size:
                assert_uniform(column, f"{name}, seat {seat}, message {position}", checks=4 * per_run)


@pytest.mark.parametrize("name", CASES)
def test_a_view_does_not_depend_on_the_secret(name: str) -> None:
    # Two secrets, one statistic: the mean of every byte position. Differences stay within chance (z-test).
    program, inputs, dtypes = CASES[name]
    if name == "where":
        others: tuple[Any, ...] = (np.zeros(4, np.int64),)
    else:
        others = tuple(np.full(4, 1000.5) for _ in inputs)
    first = [np.asarray(values).reshape(-1)[:4] for values in inputs]
    if name in MATRICES:
        first, others = [v.reshape(2, 2) for v in first], tuple(v.reshape(2, 2) for v in others)
    repeats = 60
    means = []
    for secret in (first, others):
        seen = views(program, *secret, dtypes=dtypes, runs=repeats)
        means.append([np.concatenate(part).reshape(repeats, -1).mean(axis=0) for part in seen])
    for seat in range(4):
        difference = means[0][seat] - means[1][seat]
        sigma = np.sqrt(2 * (256**2 - 1) / 12 / repeats)
        assert np.max(np.abs(difference)) < norm.isf(FALSE_ALARM / 8 / difference.size) * sigma, f"{name}, seat {seat}"


def test_evaluators_do_not_see_the_dealers_mask_twice() -> None:
    # The masked values of two comparisons of one secret differ: each gate draws its own alpha.
    messages: list[bytes] = []

    async def program(x: Any) -> None:
        for _ in range(20):
            await x.negative()

    run(program, np.array([SECRET]), tap=lambda sender, receiver, message: messages.append(message.tobytes()))
    opened = [message for message in messages if len(message) == 9]  # 71 bits of x + alpha, to both evaluators
    assert len(opened) == 40
    assert len(set(opened)) == 20


def test_input_packets_are_uniform() -> None:
    for seat in range(4):
        parts = [share(fixed())[seat] for _ in range(20)]
        payload = b"".join(packet.row + packet.column for packet in parts)
        assert_uniform(np.frombuffer(payload, np.uint8), f"packet of seat {seat}", checks=8)
        data = np.concatenate([receive(packet, *divmod(seat, 2)).reshape(-1) for packet in parts])
        assert_uniform(data.view(np.uint8), f"shares of seat {seat}", checks=8)
    keys = {packet.row for _ in range(50) for packet in share([1.0])[:1]}
    assert len(keys) == 50


def test_the_two_splits_are_independent() -> None:
    # Row and column share of one seat, and their sum and difference, are uniform: one split says nothing about the other.
    packets = share(np.full(4000, SECRET))
    for seat in range(4):
        row, column = receive(packets[seat], *divmod(seat, 2))
        for mixed in (row ^ column, row + column, row - column):
            assert_uniform(mixed.reshape(-1).view(np.uint8), f"seat {seat}", checks=12)


# -- masks -----------------------------------------------------------------------------------------------------------


def test_a_stream_address_is_used_once() -> None:
    stream = Stream("test", bytes(KEY_BYTES))
    stream.claim(1, 0)
    stream.claim(1, 1)
    stream.claim(2, 0)
    with pytest.raises(MaskReuseError, match="operation 1, purpose 1 was drawn before"):
        stream.claim(1, 1)
    stream.draw((3,), 2, 7, 4)
    with pytest.raises(MaskReuseError):
        stream.draw((3,), 2, 7, 4)
    with pytest.raises(ValueError, match="has 3 bytes, expected 16"):
        Stream("short", b"abc")


async def everything(x: SecretArray, y: SecretArray) -> list[Any]:
    """Touches every protocol, some of them merged."""
    product, less, same = await together(x * y, x < y, x == y)
    gram, shuffled, root = await together(x.reshape(2, 2) @ y.reshape(2, 2), x.shuffle(), x.rsqrt())
    exact, ordered = await together(x.mul(y, exact=True), y.sort(x))
    chosen, quotient = await together(less.where(x, y), x / y)
    z, scale = await x.normalise()
    return [
        product,
        same,
        gram,
        shuffled,
        root,
        exact,
        ordered,
        chosen,
        quotient,
        z,
        scale,
        await x.argsort(),
        await abs(y),
    ]


def test_masks_are_never_reused_in_a_whole_program(monkeypatch: pytest.MonkeyPatch) -> None:
    claims: list[tuple[int, int, int, int]] = []
    drawn: list[tuple[int, int, int]] = []
    original = Stream.claim

    def recording(stream: Stream, op: int, purpose: int) -> None:
        claims.append((id(stream), id(stream.key), op, purpose))
        original(stream, op, purpose)

    monkeypatch.setattr(Stream, "claim", recording)

    class Kernels:
        """The native module, noting every address that is really drawn from."""

        def __getattr__(self, name: str) -> Any:
            function = getattr(kernels, name)
            if name == "prg":
                return lambda out, key, op, purpose: (
                    drawn.append((id(key), op, purpose)),
                    function(out, key, op, purpose),
                )
            if name == "mask2":
                return lambda a, b, t, one, op, s, two, r: (
                    drawn.extend([(id(one), op, 0), (id(two), op, 1)]), function(a, b, t, one, op, s, two, r)
                )  # fmt: skip
            if name == "mul_mask2":
                return lambda a, b, x, y, one, op, s, two, r: (
                    drawn.extend([(id(one), op, 0), (id(two), op, 1)]), function(a, b, x, y, one, op, s, two, r)
                )  # fmt: skip
            if name == "deal_masks":
                return lambda a, s, o, r, key, op, bits: (
                    drawn.extend([(id(key), op, 0), (id(key), op, 1)]), function(a, s, o, r, key, op, bits)
                )  # fmt: skip
            if name == "bits_out":
                return lambda d, b, o, c, seat, row, column, op: (
                    drawn.extend([(id(row), op, 0), (id(column), op, 1)]), function(d, b, o, c, seat, row, column, op)
                )  # fmt: skip
            if name == "mask_bits":
                return lambda a, b, s, o, key, op: (drawn.append((id(key), op, 2)), function(a, b, s, o, key, op))
            if name == "reshare_out":
                return lambda d, at, m, p, key, op, column: (
                    drawn.append((id(key), op, 0)), function(d, at, m, p, key, op, column)
                )  # fmt: skip
            return function

    for module in ("party", "multiply", "gates", "reshare", "signs"):
        monkeypatch.setattr(f"ppca.protocol.{module}.kernels", Kernels())
    run(everything, np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 0.5, 3.0, 9.0]))
    assert len(claims) > 200
    assert len(set(claims)) == len(claims)  # per stream object, i.e. per server and key
    # Whatever is drawn was claimed, once: nothing goes around the guard.
    assert sorted(drawn) == sorted((key, op, purpose) for _, key, op, purpose in claims)


def test_mates_draw_the_same_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    # Masks cancel because the two holders of a key use it at the same addresses. A key's second use by the SAME server would
    # be a reuse; the first use by its mate is the protocol.
    claims: dict[int, set[tuple[int, int]]] = {}
    original = Stream.claim

    def recording(stream: Stream, op: int, purpose: int) -> None:
        claims.setdefault(id(stream), set()).add((op, purpose))
        original(stream, op, purpose)

    monkeypatch.setattr(Stream, "claim", recording)
    parties: dict[int, Any] = {}

    async def program(x: Any, y: Any) -> Any:
        parties[x.party.seat] = x.party
        return await everything(x, y)

    run(program, np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 0.5, 3.0, 9.0]))
    for one, two in ((0, 1), (2, 3)):
        assert claims[id(parties[one].row_stream)] == claims[id(parties[two].row_stream)]
    for one, two in ((0, 2), (1, 3)):
        assert claims[id(parties[one].column_stream)] == claims[id(parties[two].column_stream)]


@pytest.mark.parametrize(
    "operation", [lambda x: x * x, lambda x: x < 1, lambda x: x.shuffle(), lambda x: x.truncate(3)]
)
def test_a_counter_that_is_reset_is_caught(operation: Any) -> None:
    async def program(x: Any) -> None:
        await operation(x)
        x.party._ops = 0
        await operation(x)

    with pytest.raises(MaskReuseError, match="was drawn before"):
        run(program, np.array([SECRET]))


def test_two_sessions_have_different_masks() -> None:
    async def program(x: Any) -> None:
        await (x * x)

    recorded: list[list[bytes]] = []
    for _ in range(2):
        messages: list[bytes] = []
        run(program, fixed(), tap=lambda s, r, message, log=messages: log.append(message.tobytes()))
        recorded.append(messages)
    assert not set(recorded[0]) & set(recorded[1])


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
                with pytest.raises(InputRefused, match=f"seat \\({row},{column}\\)"):
                    receive(wrong, row, column)
    with pytest.raises(InputRefused):
        receive(packets[0], 1, 1)  # a packet of another seat: a key where an array is due
