"""Memory while a graph is captured."""

import torch

from scenarios.common import MIB, allocate, caught, pick, stats

NAMES = ["allocated_bytes.all.current", "active_bytes.all.current", "reserved_bytes.all.current"]


def full(device):
    """A request during a capture that only what is cached outside of it could serve; whether the capture goes on."""
    torch.npu.set_device(device)
    inputs = torch.ones(1000, device="npu")
    allocate(600 * MIB)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    # As `torch.npu.graph` does, but for emptying the cache.
    with torch.npu.stream(torch.npu.Stream()):
        graph.capture_begin()
        outputs = inputs * 2
        error = caught(allocate, 700 * MIB)
        outputs = outputs + 1
        graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    during = pick(stats(device), *NAMES)
    graph.reset()
    return {"error": error and error["types"], "during": during, "outputs": outputs.shape[0],
            "then": allocate(700 * MIB).nbytes}
