"""Loads npualloc into every Python process that imports torch_npu.

Put this directory first in PYTHONPATH and the plug-in's path in
NPUALLOC_PLUGIN: as soon as torch_npu has been imported, and so before the
script can touch the device, the plug-in is loaded. The script itself stays as
it is, and the processes it starts (torchrun, multiprocessing) get the plug-in
too. It does by itself what a user would write as

    import torch_npu
    torch.ops.load_library("/path/to/libnpualloc_torch_npu.so")
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys


class _Loader(importlib.abc.Loader):
    """torch_npu's own loader, followed by the loading of the plug-in."""

    def __init__(self, loader, plugin):
        self._loader = loader
        self._plugin = plugin

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        # Imported here: torch comes with torch_npu, and takes seconds.
        import torch

        try:
            torch.ops.load_library(self._plugin)
        except (OSError, RuntimeError) as error:
            # Where torch loads torch_npu by itself an exception would become another, and its process end with a
            # segmentation fault.
            while error.__cause__ or error.__context__:
                error = error.__cause__ or error.__context__
            print(f"error: npualloc was not loaded: {error}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(1)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torch_npu where the other finders do, and wraps its loader."""

    def __init__(self, plugin):
        self._plugin = plugin

    def find_spec(self, name, path=None, target=None):
        if name != "torch_npu":
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._plugin)
                return spec
        return None


def _run_next_sitecustomize():
    """Python runs only the first sitecustomize of its path; run the one that
    this file hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_run_next_sitecustomize()
if os.environ.get("NPUALLOC_PLUGIN"):
    sys.meta_path.insert(0, _Finder(os.environ["NPUALLOC_PLUGIN"]))
