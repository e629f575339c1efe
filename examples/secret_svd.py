"""Singular value decomposition of a secret matrix on four local servers, beside NumPy's."""

import numpy as np
from jacobi_svd import svd_jacobi  # beside this file

import ppca


async def program(party, G):  # runs on each of the four servers
    identity = ppca.SecretArray.constant(party, np.eye(G.shape[1]))
    found = await svd_jacobi(G, identity)  # one-sided Jacobi: ten rounds a step
    return {name: getattr(found, name).reveal(to="client", what=name, why="example") for name in ("U", "values", "V")}


if __name__ == "__main__":
    X = np.random.default_rng(7).normal(size=(12, 4)) * [8.0, 4.0, 2.0, 1.0]
    scale = 2.0 ** np.ceil(np.log2(np.linalg.norm(X)))  # public: svd_jacobi wants |G|_F <= 1
    with ppca.Job() as job:  # four server processes on this machine
        found = job.run(program, X / scale)
    U, values, V = found["U"], found["values"] * scale, found["V"]
    print("singular values, on shares:", np.sort(values)[::-1].round(6))
    print("singular values, in NumPy: ", np.linalg.svd(X, compute_uv=False).round(6))
    print("U S V' is X to 1e-7:       ", np.allclose((U * values) @ V.T, X, rtol=0, atol=1e-7))
    print(*dict.fromkeys(f"opened: {line['what']} to {line['to']}" for line in job.account.audit), sep="\n")
