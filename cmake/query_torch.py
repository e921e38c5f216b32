"""Prints where a Python keeps torch and torch_npu, one `KEY=VALUE` a line, without importing them.

Importing torch_npu needs a device runtime, which a build machine may not have.
"""

import importlib.metadata
import importlib.util
import pathlib
import sysconfig


def package_dir(name):
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return ""
    return str(pathlib.Path(list(spec.submodule_search_locations)[0]).resolve())


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


print("TORCH_DIR=" + package_dir("torch"))
print("TORCH_VERSION=" + version("torch"))
print("TORCH_NPU_DIR=" + package_dir("torch_npu"))
print("TORCH_NPU_VERSION=" + version("torch-npu"))
print("PYTHON_INCLUDE=" + sysconfig.get_paths()["include"])
