"""Options: the plug-in, and which random scripts."""

import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--plugin", help="path of libnpualloc_torch_npu.so")
    parser.addoption("--seed", type=int, default=0, help="seed of the first random script")
    parser.addoption("--count", type=int, default=2500, help="number of random scripts")


@pytest.fixture(scope="session")
def plugin(request):
    path = request.config.getoption("--plugin")
    if not path or not pathlib.Path(path).is_file():
        pytest.exit(f"--plugin must name the built plug-in, not {path!r}", 4)
    return path
