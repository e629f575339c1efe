"""Kernels on so many threads."""

import pytest

from ppca.native import _kernels as kernels


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = kernels.threads()
    kernels.set_threads(request.param)
    yield request.param
    kernels.set_threads(before)
