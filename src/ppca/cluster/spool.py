"""Spools: uploaded rows of shares, in files without a name, so that a server's memory does not grow with the table."""

from __future__ import annotations

import tempfile

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class Spool:
    """Rows of shares of the 64-bit ring, appended piece by piece, read back by position. Gone when it is dropped."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows = 0
        self._files = [tempfile.TemporaryFile(prefix="ppca-rows-") for _ in range(2)]  # noqa: SIM115 - they live as long as this
        self._maps: list[Words] | None = None

    def append(self, piece: Words) -> None:
        """A piece of shape (2, rows, width)."""
        if piece.ndim != 3 or piece.shape[0] != 2 or piece.shape[2] != self.width:
            raise ValueError(f"a piece of shape {piece.shape} does not go into a table of {self.width} columns")
        for file, split in zip(self._files, piece, strict=True):
            file.write(np.ascontiguousarray(split).data)
        self.rows += piece.shape[1]
        self._maps = None

    def take(self, index: NDArray[np.intp] | slice) -> Words:
        """Both splits of the given rows, shape (2, rows, width)."""
        if self._maps is None:
            for file in self._files:
                file.flush()
            shape = (self.rows, self.width)
            self._maps = [
                np.memmap(file, np.uint64, "r", shape=shape) if self.rows else np.empty(shape, np.uint64)
                for file in self._files
            ]
        return np.stack([np.asarray(part[index]) for part in self._maps])
