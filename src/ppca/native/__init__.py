"""The native layer: rings, streams, function secret sharing, one server's steps between messages, a round's frames."""

import ppca.native._kernels as kernels

from . import clock, ring

__all__ = ["clock", "kernels", "ring"]
