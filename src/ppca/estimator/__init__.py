"""scikit-learn's PCA interface over several owners' data. One process acts for owners and receiver and uses four
servers."""
