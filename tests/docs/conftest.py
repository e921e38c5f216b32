"""Options, and where the pages' commands are run."""

import os
import pathlib
import site
import subprocess
import sys

import pytest

import stage

ROOT = pathlib.Path(__file__).parents[2]


def pytest_addoption(parser):
    parser.addoption("--xtask", required=True, help="path of the program behind `cargo xtask`")
    parser.addoption("--every-page", action="store_true", help="also run pages that build something first")
    parser.addoption("--sim", required=True, help="directory of the simulator's libraries")


@pytest.fixture
def python(tmp_path_factory):
    """A virtual environment of its own that sees this one's packages: what a page needs it installs itself."""
    home = tmp_path_factory.mktemp("python") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "zz_torch.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    return home


@pytest.fixture(scope="session")
def tools(request, tmp_path_factory):
    """A directory with `cargo`: its xtask is the one that runs this, all else goes to the repository."""
    home = tmp_path_factory.mktemp("tools")
    script = home / "cargo"
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = xtask ]; then shift; exec "{request.config.getoption("--xtask")}" "$@"; fi\n'
        # The directory has a Cargo.toml by link only: Cargo would take it for another project.
        f'cd "{ROOT}" && exec "$NPUALLOC_REAL_CARGO" "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def place(request, tmp_path, python, tools):
    """Makes a page's directory; gives it and the environment of the page's commands."""
    stage.fill(tmp_path, ROOT)
    installed = tmp_path / "installed"
    path = [tools, python / "bin", installed / "bin"]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]),
        "NPUALLOC_REAL_CARGO": stage.cargo(),
        "CARGO_INSTALL_ROOT": str(installed),
        "NPUALLOC": str(ROOT),
        "PYTHON": sys.executable,
        "SIM": request.config.getoption("--sim"),
    }
    return tmp_path, environment
