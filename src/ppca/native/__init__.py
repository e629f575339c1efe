"""The native layer: rings, random streams, function secret sharing, local steps of protocols, and frames."""

import ppca.native._kernels as kernels

from . import clock, ring

__all__ = ["clock", "kernels", "ring"]
