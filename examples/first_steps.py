"""Multiply, compare and open secret arrays on four local servers."""

import numpy as np

import ppca


async def program(party, x, y):  # runs on each of the four servers
    product, smaller = await ppca.together(x * y, x < y)  # 2 rounds for both
    bits = await smaller.open(what="x < y", why="example")  # 1 round: known to the servers
    return product.reveal(to="client", what="x * y", why="example"), bits


if __name__ == "__main__":
    with ppca.Job() as job:  # four server processes on this machine
        product, bits = job.run(program, np.array([1.5, -2.0, 3.25]), np.array([4.0, 0.5, 3.0]))
    print(f"x * y = {product}\nx < y = {bits}")
    print(*(f"opened: {line['what']} to {line['to']}" for line in job.account.audit), sep="\n")
