"""What the programs here share."""

import argparse
import os
import random

import torch
import torch_npu  # noqa: F401  (makes the "npu" device known)
from torch import nn

DEVICE = torch.device("npu", 0)
MIB = 1 << 20


def arguments(description, steps, shapes, *flags, counts=()):
    """The command line: `--steps`, `--shape`, `--tiny`, `--seed` and these further switches and numbers. Adds what they choose:
    `model`, one of `shapes` (the first unless told otherwise; "tiny" is among them), and `draw`, a source of random numbers."""
    first, *others = (name for name in shapes if name != "tiny")
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps, help=f"how many (default: {steps})")
    parser.add_argument("--shape", choices=[first, *others], default=first, help=f"of the model (default: {first})")
    parser.add_argument("--tiny", action="store_true", help="a small model instead")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: 1)")
    for name, text in flags:
        parser.add_argument(name, action="store_true", help=text)
    for name, usual, text in counts:
        parser.add_argument(name, type=int, default=usual, help=f"{text} (default: {usual})")
    options = parser.parse_args()
    for name in ["--steps", *(name for name, *_ in counts)]:
        if vars(options)[name.removeprefix("--")] < 1:
            parser.error(f"{name}: at least 1")
    options.model = shapes["tiny" if options.tiny else options.shape]
    options.draw = random.Random(options.seed)
    return options


def build(make, dtype=torch.float32):
    """The module that `make` makes, with memory on the device that holds anything."""
    with torch.device("meta"):
        module = make()
    return module.to(dtype).to_empty(device=DEVICE)


def run(steps, step):
    """Calls `step(number)` for each, which returns what to call it, and tells what memory it took."""
    for number in range(steps):
        name = step(number)
        peak, reserved = torch.npu.max_memory_allocated(), torch.npu.max_memory_reserved()
        print(f"{number}: {name}, peak {peak / MIB:,.0f} MiB, reserved {reserved / MIB:,.0f} MiB", flush=True)


def language_loss(logits, wanted):
    """Cross entropy, in fp32, of what comes at each place."""
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())


def update(optimizer, clipped=None):
    """What follows on the gradients, which are clipped first where their module is given."""
    if clipped is not None:
        # Sharded modules know how themselves.
        own = getattr(clipped, "clip_grad_norm_", None)
        own(1.0) if own else nn.utils.clip_grad_norm_(clipped.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def ranks(count):
    """Makes this process the first of `count` ranks, of which the others don't exist: collectives do nothing."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore, _create_fake_pg

    distributed.Backend.register_backend("fake", _create_fake_pg, extended_api=True, devices=["cpu", "npu"])
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29511")
    distributed.init_process_group("fake", rank=0, world_size=count, store=FakeStore())


def attend(q, k, v):
    """Attention written out: scores are tensors of their own."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(scores.float(), dim=-1).to(v.dtype) @ v


def heads(x, count):
    """[batch, length, width] as [batch, heads, length, width of a head]."""
    batch, length, width = x.shape
    return x.view(batch, length, count, width // count).transpose(1, 2)


def joined(x):
    """The reverse."""
    batch, count, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, count * width)


class RMSNorm(nn.Module):
    """As the models of today have it, in steps."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.to(x.dtype)


class Gated(nn.Module):
    """Feed-forward layer with a gate."""

    def __init__(self, width, inner):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Weights(nn.Module):
    """Those of a transformer's layer with biases; how they are used is the program's."""

    def __init__(self, width, count):
        super().__init__()
        self.count = count
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
