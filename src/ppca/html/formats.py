"""Amounts as people read them."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:  # three digits, never 1e+03 ms
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def size(count: float) -> str:
    """Bytes in decimal units."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"


def percent(fraction: float) -> str:
    """Format a fraction in per cent: two decimals, or two significant digits below 0.1 %."""
    percent = 100 * fraction
    if percent == 0 or not math.isfinite(percent):
        return "0 %"
    return f"{percent:.2f} %" if abs(percent) >= 0.1 else f"{percent:.2g} %"


def counted(number: int, noun: str) -> str:
    """1 round, 2,000 rounds."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def below_resolution(resolution: float, total: float) -> tuple[str, str]:
    """Return what stands for a variance, and for its part of the total, that cannot be told from noise."""
    return f"< {resolution * total:.1g}", f"< {percent(resolution)}"


def angle_error(bound: float) -> str:
    """A bound of the angle of a component, rounded up."""
    unit = 10.0 ** math.floor(math.log10(bound)) if bound > 0 else 1.0
    return f"{math.ceil(bound / unit) * unit:.0e}"


def shape(dimensions: tuple[int, ...]) -> str:
    if not dimensions:
        return "one number"
    return " × ".join(str(length) for length in dimensions)


def relative(seconds: float) -> str:
    """A time from now on, or ago if negative: in 3 days, 5 minutes ago, now."""
    left = abs(seconds)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if left >= (length if unit != "day" else 2 * length):
            text = counted(round(left / length), unit)
            return f"in {text}" if seconds > 0 else f"{text} ago"
    return "now"
