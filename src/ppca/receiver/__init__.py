"""The receiver's side: what comes out of a job, in the clear."""

from .model import PCAModel

__all__ = ["PCAModel"]
