"""Options and the environment with the wheel in it."""

import ast
import os
import pathlib
import signal
import site
import subprocess
import sys
import warnings

import pytest

#: All that a process says which ends without an exception in C++ that can't be unwound: what CPython
#: before 3.14 does, while it shuts down, to threads in C++ that ask for its lock. Seen once, of a
#: process that had trained, and not again in 660 runs under load; no cause was found in npualloc.
UNWOUND = "terminate called without an active exception"


def pytest_addoption(parser):
    parser.addoption("--wheel", required=True, help="path of npualloc's wheel")


class Environment:
    """A virtual environment with the wheel; torch and torch_npu are those of this Python."""

    def __init__(self, directory, wheel):
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        self.python = directory / "bin" / "python"
        self._pip("install", "--no-index", "--no-deps", str(wheel))
        # After the environment's own packages, like system site packages.
        (packages,) = directory.glob("lib/python*/site-packages")
        outside = "\n".join(site.getsitepackages())
        (packages / "zz_torch.pth").write_text(outside + "\n", encoding="utf-8")

    def _pip(self, *arguments):
        subprocess.run(
            [str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments], check=True
        )

    def run(self, code, **variables):
        """Runs Python code; gives its status, output and errors.

        A process that says `UNWOUND` and nothing else is run once more, with a warning.
        """
        done = self._run(code, variables)
        if done.returncode == -signal.SIGABRT and done.stderr.strip() == UNWOUND:
            warnings.warn(f"run once more: the process ended with {UNWOUND!r}", stacklevel=2)
            done = self._run(code, variables)
        return done.returncode, done.stdout, done.stderr

    def _run(self, code, variables):
        return subprocess.run(
            [str(self.python), "-c", code],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def answer(self, code, **variables):
        """What the last line that the code prints stands for, in Python."""
        status, output, errors = self.run(code, **variables)
        assert status == 0, errors
        return ast.literal_eval(output.strip().splitlines()[-1])

    def uninstall(self):
        self._pip("uninstall", "--yes", "npualloc")


@pytest.fixture(scope="session")
def environment(request, tmp_path_factory):
    wheel = pathlib.Path(request.config.getoption("--wheel"))
    assert wheel.is_file(), wheel
    return Environment(tmp_path_factory.mktemp("environment") / "venv", wheel)
