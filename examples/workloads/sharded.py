"""Trains a GPT under FullyShardedDataParallel, as the first of eight ranks. Parameters are gathered and gradients
scattered on streams of their own, and blocks are used on several."""

import functools

import torch
from torch import nn
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.nn import functional as F
from workload import DEVICE, Weights, arguments, heads, joined, language_loss, ranks, run, update


# Words, length, width, layers, heads.
SHAPES = {
    "usual": (50304, 2048, 2560, 32, 32),
    "long": (32000, 4096, 2048, 28, 16),
    "tiny": (512, 64, 64, 2, 4),
}


class Block(Weights):
    def forward(self, x, mask):
        q, k, v = (heads(part, self.count) for part in self.qkv(self.norms[0](x)).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        scores = scores + mask
        x = x + self.project(joined(F.softmax(scores, dim=-1) @ v))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocabulary, length, width, layers, count):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, count) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, mask):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=DEVICE))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def main():
    batches = ("--batches", 1, "whose gradients are accumulated in each step")
    options = arguments(__doc__, 24, SHAPES, counts=[batches])
    _, length, *_ = options.model
    ranks(8)
    with torch.device("meta"):
        model = Model(*options.model)
    narrow = torch.bfloat16
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
        device_id=DEVICE,
        mixed_precision=MixedPrecision(param_dtype=narrow, reduce_dtype=narrow, buffer_dtype=narrow),
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        forward_prefetch=True,
        limit_all_gathers=True,
        param_init_fn=lambda module: module.to_empty(device=DEVICE, recurse=False),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    mask = torch.full((length, length), float("-inf"), device=DEVICE, dtype=narrow).triu(1)

    def step(number):
        for _ in range(options.batches):
            tokens = torch.zeros(2, length + 1, dtype=torch.long).to(DEVICE)
            loss = language_loss(model(tokens[:, :-1], mask), tokens[:, 1:])
            loss.backward()
        update(optimizer, clipped=model)
        if number % 5 == 4:
            loss.item()
        return "trained"

    run(options.steps, step)


if __name__ == "__main__":
    main()
