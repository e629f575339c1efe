"""Programs that the tests run on servers, loaded by the name of this file. Some of them misbehave."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

from ppca.protocol import Party, Pending, SecretArray, together
from ppca.protocol.rounds import Round
from ppca.runtime import PerServer


async def multiply(party: Party, x: SecretArray, y: SecretArray) -> Any:
    product = await (x * y)
    return product.reveal(what="x * y", why="test")


async def several(party: Party, x: SecretArray, y: SecretArray, *, scale: float = 1.0) -> dict[str, Any]:
    """Sealed, opened, public, private and measured values in one structure."""
    product, less = await together(x * y, x < y)
    bits = await less.open(what="x < y", why="test")
    party.progress("compared", 1.0)
    return {
        "product": (product * scale).reveal(what="x * y", why="test"),
        "less": bits,
        "public": (1, 2.5, "text", None, True, float("nan")),
        "array": np.array([1.0, np.nan]),
        "pid": PerServer(os.getpid()),
    }


async def reveal(party: Party, x: SecretArray) -> Any:
    return x.reveal(why="test")


async def public_only(party: Party, **public: Any) -> Any:
    return public


async def many_rounds(party: Party, x: SecretArray, *, rounds: int = 10**9) -> Any:
    for i in range(rounds):
        x = (await x.mul(x, within=1)).within(1.0)
        party.progress("squaring", i / rounds)
    return x.reveal(why="test")


async def fail_on(party: Party, x: SecretArray, *, servers: list[int]) -> Any:
    await (x.within(4) * x.within(4))
    if party.seat in servers:
        raise ZeroDivisionError("a made-up failure")
    await (x.within(4) * x.within(4))
    return 1


async def keep_and_fail(party: Party, x: SecretArray, *, name: str, servers: list[int]) -> Any:
    """All servers keep something; some then fail, when the others may have finished."""
    party.store[name] = {"public": {"value": 2}, "x": (x.data, x.dtype)}
    if party.seat in servers:
        raise ZeroDivisionError("a made-up failure")
    return 1


async def kept_value(party: Party, *, name: str) -> Any:
    return party.store[name]["public"]["value"] if name in party.store else None


async def signal_on(party: Party, x: SecretArray, *, server: int, name: str) -> Any:
    """One server sends itself a signal after two rounds (products of small numbers take one each)."""
    await (x.within(4) * x.within(4))
    await (x.within(4) * x.within(4))
    if party.seat == server:
        os.kill(os.getpid(), getattr(signal, name))
        time.sleep(60)
    await (x.within(4) * x.within(4))
    return 1


async def stop_at_the_end(party: Party, x: SecretArray) -> Any:
    if party.seat == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    return 1


async def exit_on(party: Party, x: SecretArray, *, server: int) -> Any:
    if party.seat == server:
        sys.exit("enough")
    await (x * x)
    return 1


async def return_secret(party: Party, x: SecretArray) -> Any:
    return {"fine": 1, "wrong": [x]}


async def return_pending(party: Party, x: SecretArray) -> Any:
    return x * x


async def return_object(party: Party, x: SecretArray) -> Any:
    return object()


async def extra_round(party: Party, x: SecretArray) -> Any:
    if party.seat == 0:
        await (x * x)
    return 1


async def extra_message(party: Party, x: SecretArray) -> Any:
    """Server 0 sends to server 1 what server 1 does not expect, in a round that all take part in."""

    def step() -> Any:
        yield Round([(1, np.zeros(5, np.uint8))] if party.seat == 0 else [], [])

    await Pending(step())
    return 1


async def own_opinion(party: Party) -> Any:
    return {"server": [party.seat]}


async def own_form(party: Party) -> Any:
    return [0] * party.seat


async def chatter(party: Party) -> Any:
    print("printed by a program")
    print("no end of line", end="")
    return party.seat * 0


async def meet_in_two_ways(party: Party, x: SecretArray, y: SecretArray) -> Any:
    """A few protocols with different messages per server; the same program for lock-step and links."""
    product, less, order = await together(x * y, x < y, x.sort())
    root = await (await (x * x) + 1).sqrt()
    return [(product + root).reveal(why="test"), await less.open(why="test"), order.reveal(why="test")]


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def fail_without_words(party: Party) -> Any:
    raise BrokenError


def not_async(party: Party) -> int:
    return 1
