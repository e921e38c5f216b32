"""Proves that a library built in fork mode defines what NPUCachingAllocator.cpp defines and needs nothing else
than what a torch_npu source tree, its libraries, Python and the device runtime have.

Every difference is printed; the exit status is 1 when there is one.
"""

import argparse
import pathlib
import subprocess
import sys


def symbols(nm, library, *options):
    """Names, without versions, that nm lists."""
    lines = subprocess.run(
        [nm, *options, "--format=posix", library], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return {line.split()[0].partition("@")[0] for line in lines}


def read(path):
    """What is defined, by visibility, and what the tree gives."""
    defines = {"exported": set(), "hidden": set()}
    needs = set()
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        words = line.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "defines" and len(words) == 3 and words[1] in defines:
            defines[words[1]].add(words[2])
        elif words[0] == "needs" and len(words) == 3:
            needs.add(words[2])
        else:
            sys.exit(f"{path}:{number}: not understood: {line}")
    return defines, needs


def given_by_the_process(name):
    """Python's, the device runtime's, and the linker's own symbols."""
    return name.startswith(("Py", "_Py", "acl", "__", "_ITM_", "pidfd_", "posix_spawn_"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--symbols", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("dependencies", nargs="+", help="libraries that libtorch_npu.so is linked with")
    arguments = parser.parse_args()

    defines, needs = read(arguments.symbols)
    everything = symbols(arguments.nm, arguments.library, "--defined-only")
    exported = symbols(arguments.nm, arguments.library, "--dynamic", "--defined-only")
    undefined = symbols(arguments.nm, arguments.library, "--dynamic", "--undefined-only")
    available = set()
    for dependency in arguments.dependencies:
        available |= symbols(arguments.nm, dependency, "--dynamic", "--defined-only")

    problems = []
    for name in sorted(defines["exported"] - exported):
        problems.append(f"not exported: {name}")
    for name in sorted(defines["hidden"] - everything):
        problems.append(f"not defined: {name}")
    for name in sorted(defines["hidden"] & exported):
        problems.append(f"exported, but hidden in torch_npu: {name}")
    for name in sorted(needs - undefined):
        problems.append(f"listed as needed from the tree, but is not: {name}")
    unknown = undefined - available - needs
    for name in sorted(name for name in unknown if not given_by_the_process(name)):
        problems.append(f"neither a library nor the tree defines: {name}")
    for name in sorted(exported):
        if "cxxbridge" in name or name.startswith("_RN") or "rust" in name:
            problems.append(f"exported, but npualloc's own business: {name}")

    print("\n".join(problems))
    counts = f"{len(defines['exported'])} exported, {len(defines['hidden'])} hidden, {len(needs)} needed"
    print(f"{counts}: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
