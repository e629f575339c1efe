"""The estimator: scikit-learn's PCA over several owners' data, fitted on shares. It conducts owners, servers and receiver."""

from .pca import PCA
from .shared import SharedFacts, SharedModel

__all__ = ["PCA", "SharedFacts", "SharedModel"]
