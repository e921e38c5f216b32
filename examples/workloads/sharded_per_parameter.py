"""Trains a Llama under `fully_shard`, as the first of eight ranks: parameters are sharded one by one. Each batch has a
length of its own."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from workload import DEVICE, Gated, RMSNorm, arguments, heads, joined, language_loss, ranks, run, update


# Words, width, inner width, layers, heads; the least and the greatest length.
SHAPES = {
    "7b": ((32000, 4096, 11008, 32, 32), (512, 2048)),
    "3b": ((64000, 3072, 8192, 28, 24), (512, 3072)),
    "tiny": ((512, 64, 128, 2, 4), (16, 64)),
}


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, width, inner, count):
        super().__init__()
        self.count = count
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(2))
        self.q, self.k, self.v, self.project = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.feed_forward = Gated(width, inner)

    def forward(self, x, cos, sin):
        y = self.norms[0](x)
        q, k, v = (heads(part(y), self.count) for part in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        x = x + self.project(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        return x + self.feed_forward(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, vocabulary, width, inner, layers, count, recompute):
        super().__init__()
        self.recompute = recompute
        self.of_head = width // count
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, inner, count) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def angles(self, length, dtype):
        steps = torch.arange(0, self.of_head, 2, device=DEVICE, dtype=torch.float32)
        turns = 1.0 / 10000 ** (steps / self.of_head)
        angles = torch.outer(torch.arange(length, device=DEVICE, dtype=torch.float32), turns)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, tokens):
        x = self.tokens(tokens)
        turn = self.angles(tokens.shape[1], x.dtype)
        for layer in self.layers:
            x = checkpoint(layer, x, *turn, use_reentrant=False) if self.recompute else layer(x, *turn)
        return self.head(self.norm(x))


def main():
    recompute = ("--recompute", "keep no activations but each layer's input, and larger batches")
    options = arguments(__doc__, 24, SHAPES, recompute)
    shape, (least, most) = options.model
    batches = [4, 6, 8, 12] if options.recompute else [4]
    ranks(8)
    with torch.device("meta"):
        model = Model(*shape, options.recompute)
    mesh = init_device_mesh("npu", (8,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in [*model.layers, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
    model.to_empty(device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(_):
        batch, length = options.draw.choice(batches), options.draw.randrange(least, most + 1, 8)
        tokens = torch.zeros(batch, length + 1, dtype=torch.long).to(DEVICE)
        loss = language_loss(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        update(optimizer)
        loss.item()
        return f"{batch} x {length}"

    run(options.steps, step)


if __name__ == "__main__":
    main()
