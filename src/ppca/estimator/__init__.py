"""The estimator: scikit-learn's PCA over several owners' data, fitted on shares."""

from .model import PCAModel
from .pca import PCA
from .shared import SharedModel

__all__ = ["PCA", "PCAModel", "SharedModel"]
