"""Spools: what was uploaded for a job, so that a server's memory does not grow with the table.

Pieces stay in memory as long as all spools of this process together hold less than `MEMORY`; the others lie in files
without a name, which end with the process. First summands of inputs are streams of a key: only the key is kept.
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
    """One layer of a piece: the key of a stream, an array, or the place of one in the file."""

    key: bytes | None = None
    array: Words | None = None
    place: int = 0


@dataclass
class _Piece:
    """Rows [start, stop) of a spool."""

    start: int
    stop: int
    layers: list[_Layer]


class Spool:
    """Rows of words in layers (the two splits of shares), appended piece by piece and read back in ascending order."""

    in_memory: ClassVar[int] = 0

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = 0
        self._pieces: list[_Piece] = []
        self._file: IO[bytes] | None = None
        self._streams: dict[int, tuple[bytes, Words]] = {}

    def append(self, rows: int, layers: Sequence[tuple[bool, Any]]) -> None:
        """A piece: each layer is (True, key of its stream) or (False, buffer of rows * width words), kept without a copy."""
        if self._pieces and len(self._pieces[0].layers) != len(layers):
            raise ValueError(f"a piece of {len(layers)} layers does not go into this table")
        stored = [_Layer(key=bytes(content)) if is_key else self._stored(rows, content) for is_key, content in layers]
        self._pieces.append(_Piece(self.rows, self.rows + rows, stored))
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
        """The rows at ascending positions, shape (layers, rows, width), in `out` if it is given."""
        at = np.arange(*index.indices(self.rows)) if isinstance(index, slice) else index
        if len(at) and (at[0] < 0 or at[-1] >= self.rows or np.any(at[1:] < at[:-1])):
            raise ValueError("rows of a spool are read at ascending positions inside it")
        if out is None:
            layers = len(self._pieces[0].layers) if self._pieces else 0
            out = np.empty((layers, len(at), self.width), np.uint64)
        ends = np.searchsorted(at, [piece.stop for piece in self._pieces])
        begin = 0
        for piece, end in zip(self._pieces, ends, strict=True):
            if end > begin:
                local = at[begin:end] - piece.start
                first, last = int(local[0]), int(local[-1])
                for number, part in enumerate(out):
                    rows = self._read(piece, number, first, last + 1)
                    part[begin:end] = rows if len(rows) == len(local) else rows[local - first]
                begin = end
        return out

    def _read(self, piece: _Piece, number: int, first: int, stop: int) -> Words:
        """Rows [first, stop) of one layer of a piece."""
        layer = piece.layers[number]
        if layer.key is not None:
            return self._stream(number, layer.key, piece.stop - piece.start)[first:stop]
        if layer.array is not None:
            return layer.array[first:stop]
        assert self._file is not None
        self._file.seek(layer.place + first * self.width * 8)
        return np.frombuffer(self._file.read((stop - first) * self.width * 8), np.uint64).reshape(-1, self.width)

    def _stream(self, number: int, key: bytes, rows: int) -> Words:
        """The stream of a piece. The last one of every layer is at hand, as pieces are read one after the other, bit by bit."""
        known, array = self._streams.get(number, (b"", np.empty((0, self.width), np.uint64)))
        if known != key:
            array = array if len(array) == rows else np.empty((rows, self.width), np.uint64)
            self._streams[number] = key, expand(key, array)
        return array

    def close(self) -> None:
        """Gives memory and file back."""
        layers = [layer for piece in self._pieces for layer in piece.layers]
        Spool.in_memory -= sum(layer.array.nbytes for layer in layers if layer.array is not None)
        self._pieces, self._streams, self.rows = [], {}, 0
        if self._file is not None:
            self._file.close()
            self._file = None
