"""Trains on a device of its own, whose memory is npualloc's, and runs it out of memory.

    python train.py PATH/libtoy.so

Run again with PYTORCH_ALLOC_CONF=expandable_segments:False: the same with fixed segments instead of virtual memory.
"""

import sys
import time
import types

import torch

torch.utils.rename_privateuse1_backend("toy")
if len(sys.argv) != 2:
    sys.exit("usage: train.py PATH/libtoy.so")
torch.ops.load_library(sys.argv[1])
torch.ops.toy.init()
module = types.ModuleType("torch.toy")
# The device makes no random numbers.
module._is_in_bad_fork = lambda: False
module.manual_seed_all = lambda seed: None
torch._register_device_module("toy", module)


def stat(name):
    return torch.accelerator.memory_stats()[name]


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to("toy")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
features = torch.randn(512, 64)
features, target = features.to("toy"), features.sum(1, keepdim=True).to("toy")
losses = []
for _ in range(20):
    loss = ((model(features) - target) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.1f} -> {losses[-1]:.1f} on {features.device}")
assert losses[-1] < losses[0] / 2

print(f"{stat('allocated_bytes.all.current')} bytes allocated, {stat('reserved_bytes.all.current')} reserved, "
      f"{stat('allocation.all.allocated')} allocations, {stat('num_device_alloc')} calls for memory")
assert 0 < stat("num_device_alloc") < stat("allocation.all.allocated") / 10

# A block that another stream uses is not given out again before that stream has passed.
side = torch.Stream(device="toy")
block = torch.empty(1 << 20, device="toy")
block.record_stream(side)
del block

try:
    torch.empty(1 << 30, dtype=torch.uint8, device="toy")
except torch.OutOfMemoryError as error:
    print("1 GiB: " + str(error).splitlines()[0])
else:
    sys.exit("1 GiB fits into 256 MiB")

del model, optimizer, features, target, loss
torch.accelerator.empty_cache()
print(f"{stat('allocated_bytes.all.current')} bytes allocated, {stat('reserved_bytes.all.current')} reserved")
assert stat("reserved_bytes.all.current") == 0

# After backward() a thread of torch's still drops the graph, for which it needs the interpreter. Python before 3.14 aborts
# the process when it ends meanwhile, as can happen on a busy machine.
time.sleep(0.5)
