"""SEES RESULTS: what comes out of a job, in the clear, for the receivers whom the owners named."""

from .facts import SharedFacts
from .model import PCAModel

__all__ = ["PCAModel", "SharedFacts"]
