"""Joint linear regression of three clinics on four local servers."""

import numpy as np
from sklearn.datasets import load_diabetes

import ppca

if __name__ == "__main__":
    patients = load_diabetes(as_frame=True, scaled=False).frame
    clinics = [patients.iloc[part] for part in np.array_split(np.arange(len(patients)), 3)]
    model = ppca.LinearRegression().fit(clinics, target="target")  # four servers see shares only
    for name, coefficient, p in zip(model.feature_names_in_, model.coef_, model.p_values_, strict=False):
        print(f"{name:>4}  {coefficient:9.4f}  p = {p:.2g}")
    print("R squared:", round(model.r2_, 6))
    print("opened:", ", ".join(sorted({line["what"] for line in model.openings_ if line["to"] == "servers"})))
