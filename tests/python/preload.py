"""Libraries of C that tests preload."""

import os
import pathlib
import subprocess

NATIVE = pathlib.Path(__file__).parent / "native"


def shared_library(source, library):
    """Builds `native/SOURCE` (any other path as it is) as `library`; returns that."""
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", str(NATIVE / source), "-o", str(library)], check=True
    )
    return library


def preloaded(library):
    """The environment in which a library (none: nothing more) is loaded first."""
    preloads = [os.environ.get("LD_PRELOAD", ""), str(library or "")]
    return {"LD_PRELOAD": ":".join(filter(None, preloads))}
