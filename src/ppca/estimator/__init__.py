"""The estimator: scikit-learn's PCA over several owners' data, fitted on shares."""

from .model import PCAModel
from .pca import PCA

__all__ = ["PCA", "PCAModel"]
