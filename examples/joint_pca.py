"""Joint PCA of three hospitals' rows on four local servers, beside scikit-learn on the pooled data."""

import numpy as np
import sklearn.decomposition
from sklearn.datasets import load_breast_cancer

import ppca

if __name__ == "__main__":
    pooled = load_breast_cancer().data
    hospitals = np.split(pooled, [100, 269])  # 100, 169 and 300 patients

    joint = ppca.PCA(n_components=3).fit(hospitals)  # four servers see shares only
    reference = sklearn.decomposition.PCA(n_components=3, svd_solver="full").fit(pooled)

    print("explained variance ratio:", joint.explained_variance_ratio_.round(6))
    print("as scikit-learn to 1e-6: ", np.allclose(joint.components_, reference.components_, atol=1e-6))
