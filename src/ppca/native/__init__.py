"""The native layer: ring arithmetic, pseudo-random streams and function secret sharing. No protocol, no policy."""

from . import _kernels as kernels
from . import ring

__all__ = ["kernels", "ring"]
