"""Joint PCA of three hospitals on four local servers."""

import numpy as np
from sklearn.datasets import load_breast_cancer

import ppca

if __name__ == "__main__":
    hospitals = np.split(load_breast_cancer().data, [100, 269])  # 100, 169 and 300 patients
    pca = ppca.PCA(n_components=3, standardize=True).fit(hospitals)  # four servers see shares only
    print("fraction of variance:", pca.explained_variance_ratio_.round(6))
    print("opened:", ", ".join(sorted({line["what"] for line in pca.openings_ if line["to"] == "servers"})))
