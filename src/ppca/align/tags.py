"""Tags: keyed pseudonyms of ids. AES-CMAC (NIST SP 800-38B), a pseudo-random function of the id under a key of the owners.

Servers see tags only. Without the key a tag tells nothing about its id; with a new key for every job, tags of two jobs cannot be
joined. Two ids share a tag with probability 2^-128 per pair. Rows are sent in the order of their tags, which is as random
as the tags are: the order of the owner's table does not leave it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..native import kernels
from .ids import IdError, Ids

BLOCK = 16
CHUNK = 1 << 19
"""Ids per pass: bounds the memory for padded blocks."""


def make_tags(ids: Ids, key: bytes) -> NDArray[np.uint64]:
    """One 128-bit tag per id, shape (n, 2)."""
    if len(key) != BLOCK:
        raise ValueError(f"the key of tags has {len(key)} bytes, expected {BLOCK}")
    schedule = kernels.Key(key)
    whole, partial = _subkeys(schedule)
    out = np.empty((len(ids), 2), np.uint64)
    lengths = ids.lengths
    for start in range(0, len(ids), CHUNK):
        stop = min(len(ids), start + CHUNK)
        out[start:stop] = _cmac(ids, lengths, start, stop, schedule, whole, partial)
    return out


def _cmac(
    ids: Ids,
    lengths: NDArray[np.int64],
    start: int,
    stop: int,
    schedule: kernels.Key,
    whole: NDArray[np.uint8],
    partial: NDArray[np.uint8],
) -> NDArray[np.uint64]:
    """CMAC of ids[start:stop], all in step: block b of every id that has one, XORed into its state and encrypted."""
    size = lengths[start:stop]
    count = np.maximum(1, -(-size // BLOCK))
    most = int(count.max())
    padded = np.zeros((stop - start, most * BLOCK), np.uint8)
    first = ids.offsets[start]
    content = ids.data[first : ids.offsets[stop]]
    row = np.repeat(np.arange(stop - start), size)
    column = np.arange(len(content)) - np.repeat(ids.offsets[start:stop] - first, size)
    padded[row, column] = content
    rows = np.arange(stop - start)
    short = size % BLOCK != 0
    short |= size == 0
    padded[rows[short], size[short]] = 0x80
    last = (count - 1)[:, None] * BLOCK + np.arange(BLOCK)
    padded[rows[:, None], last] ^= np.where(short[:, None], partial, whole)
    state = np.zeros((stop - start, BLOCK), np.uint8)
    for b in range(most):
        active = np.flatnonzero(count > b)
        block = state[active] ^ padded[active, b * BLOCK : (b + 1) * BLOCK]
        done = np.empty_like(block)
        kernels.aes_blocks(done, schedule, block)
        state[active] = done
    return state.view(np.uint64)


def _subkeys(schedule: kernels.Key) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """K1 for a complete last block, K2 for a padded one: doublings of E(0) in GF(2^128)."""
    zero = np.zeros((1, BLOCK), np.uint8)
    out = np.empty_like(zero)
    kernels.aes_blocks(out, schedule, zero)
    value = int.from_bytes(out.tobytes(), "big")
    keys = []
    for _ in range(2):
        value = (value << 1) & (2**128 - 1) ^ (0x87 if value >> 127 else 0)
        keys.append(np.frombuffer(value.to_bytes(BLOCK, "big"), np.uint8))
    return keys[0], keys[1]


def order_of(tags: NDArray[np.uint64], label: str) -> NDArray[np.intp]:
    """The order of rows by tag; duplicate ids are refused (equal tags mean equal ids)."""
    order = np.argsort(tags[:, 0], kind="stable")
    ranked = tags[order]
    same = ranked[1:, 0] == ranked[:-1, 0]
    if same.any():
        order = np.lexsort((tags[:, 1], tags[:, 0]))
        ranked = tags[order]
        duplicates = int(np.sum(np.all(ranked[1:] == ranked[:-1], axis=1)))
        if duplicates:
            raise IdError(f"{label}: {duplicates} ids occur more than once; keep one row per id")
    return order
