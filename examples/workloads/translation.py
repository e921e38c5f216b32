"""Trains T5 to translate. Batches have about as many tokens, and any shape: sentences of one length, so many as fit."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from workload import DEVICE, RMSNorm, arguments, build, heads, joined, language_loss, run, update

DROPPED = 0.1
DISTANCES = 32


# Words, width, inner width, layers of either half, heads; tokens of a batch.
SHAPES = {
    "large": ((32128, 1024, 4096, 24, 16), 5600),
    "base": ((32128, 768, 3072, 12, 12), 14000),
    "wide": ((32128, 1536, 6144, 12, 24), 5600),
    "wider": ((32128, 2048, 5120, 10, 32), 5000),
    "tiny": ((512, 64, 128, 2, 4), 256),
}


def drop(x):
    return F.dropout(x, DROPPED, True)


class Attention(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.count = count
        self.q, self.k, self.v, self.project = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, memory, bias):
        q, k, v = (heads(part(of), self.count) for part, of in ((self.q, x), (self.k, memory), (self.v, memory)))
        scores = q @ k.transpose(-1, -2) + bias
        weights = drop(F.softmax(scores.float(), dim=-1).to(scores.dtype))
        return self.project(joined(weights @ v))


class Layer(nn.Module):
    def __init__(self, width, inner, count, decoder):
        super().__init__()
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(3 if decoder else 2))
        self.itself = Attention(width, count)
        self.source = Attention(width, count) if decoder else None
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, bias, memory=None, memory_bias=None):
        y = self.norms[0](x)
        x = x + drop(self.itself(y, y, bias))
        if self.source is not None:
            x = x + drop(self.source(self.norms[2](x), memory, memory_bias))
        return x + drop(self.down(drop(F.relu(self.up(self.norms[1](x))))))


class Model(nn.Module):
    def __init__(self, vocabulary, width, inner, layers, count):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.distances = nn.ModuleList(nn.Embedding(DISTANCES, count) for _ in range(2))
        self.encoder = nn.ModuleList(Layer(width, inner, count, False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, inner, count, True) for _ in range(layers))
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(2))

    def bias(self, distances, length, seen):
        at = torch.arange(length, device=DEVICE)
        apart = (at[None] - at[:, None]).abs().clamp(max=DISTANCES - 1)
        bias = distances(apart).permute(2, 0, 1).unsqueeze(0)
        return bias + (1.0 - seen.to(bias.dtype)) * -1e4

    def forward(self, source, seen, target):
        seen = seen[:, None, None, :]
        x, bias = drop(self.tokens(source)), self.bias(self.distances[0], source.shape[1], seen)
        for layer in self.encoder:
            x = layer(x, bias)
        memory = drop(self.norms[0](x))
        length = target.shape[1]
        x, past = drop(self.tokens(target)), torch.ones(length, length, device=DEVICE).tril()
        bias = self.bias(self.distances[1], length, past[None, None])
        memory_bias = (1.0 - seen.to(x.dtype)) * -1e4
        for layer in self.decoder:
            x = layer(x, bias, memory, memory_bias)
        return F.linear(drop(self.norms[1](x)) * x.shape[-1] ** -0.5, self.tokens.weight)


def main():
    options = arguments(__doc__, 95, SHAPES)
    shape, budget = options.model
    draw = options.draw
    model = build(lambda: Model(*shape), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(number):
        about = int(min(512, max(8, draw.lognormvariate(math.log(90), 0.6))))
        batch = max(4, min(192, budget // max(about, 24)))
        sources = [max(4, min(512, int(about * draw.uniform(0.7, 1.1)))) for _ in range(batch)]
        target = max(max(4, min(512, int(length * draw.lognormvariate(0.05, 0.2)))) for length in sources)
        source = max(sources)
        tokens = torch.zeros(batch, source, dtype=torch.long).to(DEVICE)
        seen = torch.ones(batch, source, dtype=torch.bool).to(DEVICE)
        wanted = torch.zeros(batch, target + 1, dtype=torch.long).to(DEVICE)
        loss = language_loss(model(tokens, seen, wanted[:, :-1]), wanted[:, 1:])
        loss.backward()
        update(optimizer, clipped=model)
        if number % 10 == 9:
            loss.item()
        return f"{batch} x {source} to {target}"

    run(options.steps, step)


if __name__ == "__main__":
    main()
