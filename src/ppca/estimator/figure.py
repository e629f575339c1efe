"""Figures of `PCA.plot`, which notebooks show.

This module needs Matplotlib (the extra `plot`); `plot` imports it when a picture is drawn.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that a notebook shows once if it is the value of a cell. pyplot does not keep it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        """Return the picture as PNG. IPython calls this method."""
        file = BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()
