"""The estimator: scikit-learn's PCA over several owners' data. It conducts owners, servers and receiver in one process."""
