"""Trains a masked language model. Batches have about as many tokens, and lengths in steps of eight; places to guess are
picked out before the last layer."""

import torch
from torch import nn
from torch.nn import functional as F
from workload import DEVICE, Weights, arguments, build, heads, joined, run, update

GUESSED = 0.15
SAVED_EVERY = 50

# Words, longest, width, layers, heads; tokens of a batch.
SHAPES = {
    "large": ((50368, 1024, 1024, 24, 16), 12288),
    "tiny": ((512, 64, 64, 2, 4), 256),
}


class Layer(Weights):
    def forward(self, x, mask):
        q, k, v = (heads(part, self.count) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        weights = F.dropout(F.softmax(scores + mask, dim=-1), 0.1)
        x = self.norms[0](x + F.dropout(self.project(joined(weights @ v)), 0.1))
        return self.norms[1](x + F.dropout(self.down(F.gelu(self.up(x))), 0.1))


class Model(nn.Module):
    def __init__(self, vocabulary, longest, width, layers, count):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, count) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))

    def forward(self, tokens, seen, guessed):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=DEVICE))
        mask = (1.0 - seen[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, mask)
        return F.linear(self.head(x.flatten(0, 1).index_select(0, guessed)), self.tokens.weight)


def main():
    options = arguments(__doc__, 120, SHAPES)
    shape, budget = options.model
    longest = shape[1]
    model = build(lambda: Model(*shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(number):
        length = options.draw.randrange(longest // 8, longest + 1, 8)
        batch = max(1, budget // length)
        tokens = torch.zeros(batch, length, dtype=torch.long).to(DEVICE)
        seen = torch.ones(batch, length, dtype=torch.bool).to(DEVICE)
        guessed = torch.zeros(int(GUESSED * batch * length), dtype=torch.long).to(DEVICE)
        with torch.autocast("npu", dtype=torch.bfloat16):
            found = model(tokens, seen, guessed)
        loss = F.cross_entropy(found.float(), guessed)
        loss.backward()
        update(optimizer, clipped=model)
        if number % 10 == 9:
            loss.item()
        if number % SAVED_EVERY == SAVED_EVERY - 1:
            # As if to be saved: everything on the host, one by one.
            for value in model.state_dict().values():
                value.cpu()
        return f"{batch} x {length}"

    run(options.steps, step)


if __name__ == "__main__":
    main()
