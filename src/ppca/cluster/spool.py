"""Spools: what was uploaded for a job, so that a server's memory does not grow with the table.

Pieces stay in memory as long as all spools of this process together hold less than `MEMORY`; the others lie in files
without a name, which end with the process.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import IO, ClassVar

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

MEMORY = 1 << 30
"""Bytes that all spools of a process together keep in memory."""


@dataclass
class _Piece:
    """Rows [start, stop) of a spool: an array, or the place of one in the file."""

    start: int
    stop: int
    array: Words | None
    place: int = 0


class Spool:
    """Rows of words in several layers (the two splits of shares), appended piece by piece and read back in ascending order."""

    in_memory: ClassVar[int] = 0

    def __init__(self, width: int, layers: int = 2) -> None:
        self.width = width
        self.layers = layers
        self.rows = 0
        self._pieces: list[_Piece] = []
        self._file: IO[bytes] | None = None

    def append(self, piece: Words) -> None:
        """A piece of shape (layers, rows, width). It is kept, not copied: the caller gives it away."""
        if piece.ndim != 3 or piece.shape[0] != self.layers or piece.shape[2] != self.width:
            raise ValueError(f"a piece of shape {piece.shape} does not go into a table of {self.width} columns")
        stop = self.rows + piece.shape[1]
        if Spool.in_memory + piece.nbytes <= MEMORY:
            Spool.in_memory += piece.nbytes
            self._pieces.append(_Piece(self.rows, stop, piece))
        else:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="ppca-rows-")  # noqa: SIM115 - it lives as long as this
            place = self._file.seek(0, 2)
            self._file.write(np.ascontiguousarray(piece).data)
            self._pieces.append(_Piece(self.rows, stop, None, place))
        self.rows = stop

    def take(self, index: NDArray[np.integer] | slice) -> Words:
        """The rows at ascending positions, shape (layers, rows, width)."""
        at = np.arange(*index.indices(self.rows)) if isinstance(index, slice) else index
        if len(at) and (at[0] < 0 or at[-1] >= self.rows or np.any(at[1:] < at[:-1])):
            raise ValueError("rows of a spool are read at ascending positions inside it")
        out = np.empty((self.layers, len(at), self.width), np.uint64)
        ends = np.searchsorted(at, [piece.stop for piece in self._pieces])
        begin = 0
        for piece, end in zip(self._pieces, ends, strict=True):
            if end > begin:
                self._read(piece, at[begin:end] - piece.start, out[:, begin:end])
                begin = end
        return out

    def _read(self, piece: _Piece, local: NDArray[np.integer], out: Words) -> None:
        first, last = int(local[0]), int(local[-1])
        dense = last - first + 1 == len(local)
        for layer in range(self.layers):
            if piece.array is not None:
                rows = piece.array[layer, first : last + 1]
            else:
                assert self._file is not None
                self._file.seek(piece.place + (layer * (piece.stop - piece.start) + first) * self.width * 8)
                count = (last - first + 1) * self.width
                rows = np.frombuffer(self._file.read(count * 8), np.uint64).reshape(-1, self.width)
            out[layer] = rows if dense else rows[local - first]

    def close(self) -> None:
        """Gives memory and file back."""
        Spool.in_memory -= sum(piece.array.nbytes for piece in self._pieces if piece.array is not None)
        self._pieces, self.rows = [], 0
        if self._file is not None:
            self._file.close()
            self._file = None
