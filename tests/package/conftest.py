"""Options and the environment with the wheel in it."""

import ast
import os
import pathlib
import site
import subprocess
import sys

import pytest


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
        """Runs Python code; gives its status, output and errors."""
        done = subprocess.run(
            [str(self.python), "-c", code],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

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
