"""The native layer: ring arithmetic, pseudo-random streams and function secret sharing. No protocol, no policy."""

import ppca.native._kernels as kernels

from . import clock, ring

__all__ = ["clock", "kernels", "ring"]
