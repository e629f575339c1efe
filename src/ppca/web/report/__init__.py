"""The report of a joint PCA: one self-contained page, and tables that the command line also prints."""

from ...html.formats import angle_error, below_resolution, duration, percent, size
from .account import KindLine, OpeningLine, StageLine, kind_lines, opening_lines, stage_lines
from .page import write_report
from .regression import coefficient_lines, facts, write_regression_report

__all__ = [
    "KindLine",
    "OpeningLine",
    "StageLine",
    "angle_error",
    "below_resolution",
    "coefficient_lines",
    "duration",
    "facts",
    "kind_lines",
    "opening_lines",
    "percent",
    "size",
    "stage_lines",
    "write_regression_report",
    "write_report",
]
