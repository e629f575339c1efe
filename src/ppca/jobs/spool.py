"""Spools: storage of uploaded rows, in memory or on disk, so that a server's memory does not grow with the table.

Chunks stay in memory as long as all spools of this process together hold less than `MEMORY` bytes; the others are in
unnamed files, which disappear with the process. The first summand of an input is the stream of a key: only the key is
kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..protocol.inputs import expand

Words = NDArray[np.uint64]

MEMORY = 3 << 28
"""Bytes that all spools of a process together keep in memory."""


@dataclass
class _Layer:
    """One layer of a chunk: the key of a stream, an array, or the position of an array in the file."""

    key: bytes | None = None
    array: Words | None = None
    place: int = 0


@dataclass
class _StoredChunk:
    """Rows [start, stop) of a spool."""

    start: int
    stop: int
    layers: list[_Layer]


class Spool:
    """Rows of 64-bit words in layers (the two splits of shares), appended in chunks and read back in ascending
    order."""

    in_memory: ClassVar[int] = 0

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = 0
        self._chunks: list[_StoredChunk] = []
        self._file: IO[bytes] | None = None
        self._streams: dict[int, tuple[bytes, Words]] = {}

    def append(self, rows: int, layers: Sequence[tuple[bool, Any]]) -> None:
        """Append a chunk. Each layer is (True, key of its stream) or (False, buffer of rows * width words), kept
        without a copy."""
        if self._chunks and len(self._chunks[0].layers) != len(layers):
            raise ValueError(f"a chunk of {len(layers)} layers does not go into this table")
        stored = [_Layer(key=bytes(content)) if is_key else self._stored(rows, content) for is_key, content in layers]
        self._chunks.append(_StoredChunk(self.rows, self.rows + rows, stored))
        self.rows += rows

    def _stored(self, rows: int, content: Any) -> _Layer:
        words = np.frombuffer(content, np.uint64)
        if len(words) != rows * self.width:
            raise ValueError(f"{len(words)} words are not {rows} rows of a table of {self.width} columns")
        if Spool.in_memory + words.nbytes <= MEMORY:
            Spool.in_memory += words.nbytes
            return _Layer(array=words.reshape(rows, self.width))
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="ppca-rows-")  # noqa: SIM115 - it lives as long as this
        place = self._file.seek(0, 2)
        self._file.write(words.data)
        return _Layer(place=place)

    def take(self, index: NDArray[np.integer[Any]] | slice, out: Words | None = None) -> Words:
        """Return the rows at ascending positions, with shape (layers, rows, width); in `out` if given."""
        at = np.arange(*index.indices(self.rows)) if isinstance(index, slice) else index
        if len(at) and (at[0] < 0 or at[-1] >= self.rows or np.any(at[1:] < at[:-1])):
            raise ValueError("rows of a spool are read at ascending positions inside it")
        if out is None:
            layers = len(self._chunks[0].layers) if self._chunks else 0
            out = np.empty((layers, len(at), self.width), np.uint64)
        ends = np.searchsorted(at, [chunk.stop for chunk in self._chunks])
        begin = 0
        for chunk, end in zip(self._chunks, ends, strict=True):
            if end > begin:
                local = at[begin:end] - chunk.start
                first, last = int(local[0]), int(local[-1])
                for number, part in enumerate(out):
                    rows = self._read(chunk, number, first, last + 1)
                    part[begin:end] = rows if len(rows) == len(local) else rows[local - first]
                begin = end
        return out

    def _read(self, chunk: _StoredChunk, number: int, first: int, stop: int) -> Words:
        """Return rows [first, stop) of one layer of a chunk."""
        layer = chunk.layers[number]
        if layer.key is not None:
            return self._stream(number, layer.key, chunk.stop - chunk.start)[first:stop]
        if layer.array is not None:
            return layer.array[first:stop]
        assert self._file is not None
        self._file.seek(layer.place + first * self.width * 8)
        return np.frombuffer(self._file.read((stop - first) * self.width * 8), np.uint64).reshape(-1, self.width)

    def _stream(self, number: int, key: bytes, rows: int) -> Words:
        """Return the stream of a chunk. The last one of every layer is cached, because chunks are read sequentially in
        parts."""
        known, array = self._streams.get(number, (b"", np.empty((0, self.width), np.uint64)))
        if known != key:
            array = array if len(array) == rows else np.empty((rows, self.width), np.uint64)
            self._streams[number] = key, expand(key, array)
        return array

    def close(self) -> None:
        """Free memory and file."""
        layers = [layer for chunk in self._chunks for layer in chunk.layers]
        Spool.in_memory -= sum(layer.array.nbytes for layer in layers if layer.array is not None)
        self._chunks, self._streams, self.rows = [], {}, 0
        if self._file is not None:
            self._file.close()
            self._file = None
