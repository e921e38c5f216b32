"""What the pages' commands find in their directory."""

import gzip
import os
import pathlib
import shutil

# Placed by the names that the pages use for "some script of yours".
TRAIN = """
import sys
import torch
import torch_npu
model = torch.nn.Linear(256, 256).to("npu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(64, 256, device="npu")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.npu.synchronize()
print("trained", sys.argv[1:])
"""
SCRIPTS = ("train.py", "server.py", "script.py")
TRACES = ("s1.trace.gz", "s2.trace.gz", "my.trace")


def trace():
    """Steps of a few blocks that grow."""
    lines = ["# npualloc-trace v1", "# workload a test of the documents"]
    block = 0
    for step in range(40):
        lines.append(f"m step {step}")
        held = []
        for part in range(6):
            lines.append(f"a {block} {(1 << 20) * (part + 1) + step * 65536} 0")
            held.append(block)
            block += 1
        lines += [f"f {one}" for one in held]
    return "\n".join(lines) + "\n"


def fill(directory, root):
    """Links to the entries of the repository's root, and what the pages take for granted."""
    for entry in root.iterdir():
        if entry.name not in (".git", "target", "build"):
            (directory / entry.name).symlink_to(entry)
    for name in SCRIPTS:
        (directory / name).write_text(TRAIN, encoding="utf-8")
    for name in TRACES:
        contents = trace().encode()
        (directory / name).write_bytes(gzip.compress(contents) if name.endswith(".gz") else contents)


def cargo():
    """The Cargo that builds this project."""
    found = os.environ.get("CARGO") or shutil.which("cargo")
    assert found, "no cargo"
    return str(pathlib.Path(found).absolute())
