"""Tags: keyed pseudonyms of ids. AES-CMAC (NIST SP 800-38B), a pseudo-random function of the id under a key of the
owners.

Servers see tags only. Without the key a tag reveals nothing about its id. The key is new for every job, so tags of two
jobs cannot be joined. Two ids have the same tag with probability 2^-128 per pair. Rows are sent in the order of their
tags, which is pseudo-random, so the order of the owner's table is not revealed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...native import kernels
from .ids import IdError, Ids

BLOCK = 16
CHUNK_BYTES = 1 << 23
"""Maximum bytes of padded ids per pass. It bounds the memory for ids of any length and fits into the cache."""

Words = NDArray[np.uint64]


def make_tags(ids: Ids, key: bytes) -> Words:
    """Return one 128-bit tag per id, shape (n, 2)."""
    if len(key) != BLOCK:
        raise ValueError(f"the key of tags has {len(key)} bytes, expected {BLOCK}")
    schedule = kernels.Key(key)
    whole, partial = _subkeys(schedule)
    out = np.empty((len(ids), 2), np.uint64)
    lengths = ids.lengths
    blocks = np.maximum(1, -(-lengths // BLOCK))
    start = 0
    while start < len(ids):
        stop = min(len(ids), start + CHUNK_BYTES // BLOCK)
        while (stop - start) * int(blocks[start:stop].max()) * BLOCK > CHUNK_BYTES and stop - start > 1:
            stop = start + (stop - start) // 2
        content = ids.data[ids.offsets[start] : ids.offsets[stop]]
        out[start:stop] = _cmac(content, lengths[start:stop], blocks[start:stop], schedule, whole, partial)
        start = stop
    return out


def _cmac(
    content: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    blocks: NDArray[np.int64],
    schedule: kernels.Key,
    whole: Words,
    partial: Words,
) -> Words:
    """Compute the CMAC of concatenated ids in parallel: block b of every id is XORed into its state and encrypted."""
    count, most = len(lengths), int(blocks.max())
    rows = np.arange(count)
    padded = np.zeros((count, most * BLOCK), np.uint8)
    padded[np.arange(most * BLOCK) < lengths[:, None]] = content
    short = lengths % BLOCK != 0
    short |= lengths == 0
    padded[rows[short], lengths[short]] = 0x80
    words = padded.view(np.uint64).reshape(count, most, 2)
    words[rows, blocks - 1] ^= np.where(short[:, None], partial, whole)
    state = np.zeros((count, 2), np.uint64)
    for b in range(most):
        active = rows if b == 0 else np.flatnonzero(blocks > b)
        block = state[active] ^ words[active, b]
        done = np.empty_like(block)
        kernels.aes_blocks(done.view(np.uint8), schedule, block.view(np.uint8))
        state[active] = done
    return state


def _subkeys(schedule: kernels.Key) -> tuple[Words, Words]:
    """Return K1 (for a complete last block) and K2 (for a padded one): doublings of E(0) in GF(2^128)."""
    zero = np.zeros((1, BLOCK), np.uint8)
    out = np.empty_like(zero)
    kernels.aes_blocks(out, schedule, zero)
    value = int.from_bytes(out.tobytes(), "big")
    keys = []
    for _ in range(2):
        value = (value << 1) & (2**128 - 1) ^ (0x87 if value >> 127 else 0)
        keys.append(np.frombuffer(value.to_bytes(BLOCK, "big"), np.uint64))
    return keys[0], keys[1]


def order_of(tags: Words, label: str) -> NDArray[np.intp]:
    """Return the order of rows by tag. Raise for duplicate ids (equal tags mean equal ids)."""
    order = np.argsort(tags[:, 0])
    first = tags[order, 0]
    if np.any(first[1:] == first[:-1]):
        order = np.lexsort((tags[:, 1], tags[:, 0]))
        ranked = tags[order]
        duplicates = int(np.sum(np.all(ranked[1:] == ranked[:-1], axis=1)))
        if duplicates:
            raise IdError(f"{label}: {duplicates} ids occur more than once; keep one row per id")
    return order
