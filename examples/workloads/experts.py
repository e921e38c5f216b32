"""Trains a mixture of experts. This rank has 8 of 64; how many tokens each gets changes from layer to layer, and they
are exchanged on a stream of their own."""

import torch
from torch import nn
from torch.nn import functional as F
from workload import DEVICE, Gated, RMSNorm, arguments, attend, build, heads, joined, language_loss, run, update

ALL = 64
HERE = 8
CHOICES = 2


# Words, width, inner width, layers, heads; length.
SHAPES = {
    "usual": ((50304, 2048, 5632, 16, 16), 1024),
    "deep": ((64000, 1536, 4096, 20, 12), 2048),
    "tiny": ((512, 64, 128, 2, 4), 64),
}


class Exchange(torch.autograd.Function):
    """Tokens to the ranks of their experts, or back. What arrives has another length."""

    stream = None

    @staticmethod
    def move(sent, count):
        current, comm = torch.npu.current_stream(), Exchange.stream
        comm.wait_stream(current)
        with torch.npu.stream(comm):
            received = torch.empty(count, sent.shape[1], dtype=sent.dtype, device=DEVICE)
            sent.record_stream(comm)
        current.wait_stream(comm)
        received.record_stream(current)
        return received

    @staticmethod
    def forward(context, sent, count):
        context.count = sent.shape[0]
        return Exchange.move(sent, count)

    @staticmethod
    def backward(context, gradient):
        return Exchange.move(gradient.contiguous(), context.count), None


class Experts(nn.Module):
    def __init__(self, width, inner, draw):
        super().__init__()
        self.route = nn.Linear(width, ALL, bias=False)
        self.experts = nn.ModuleList(Gated(width, inner) for _ in range(HERE))
        self.draw = draw

    def forward(self, x):
        tokens = x.shape[0]
        weights, _ = F.softmax(self.route(x).float(), dim=-1).topk(CHOICES, dim=-1)
        sent = x.index_select(0, torch.zeros(CHOICES * tokens, dtype=torch.long, device=DEVICE))
        mean = CHOICES * tokens / HERE
        counts = [max(1, int(mean * self.draw.lognormvariate(0, 0.5))) for _ in self.experts]
        parts = Exchange.apply(sent, sum(counts)).split(counts)
        done = torch.cat([expert(part) for expert, part in zip(self.experts, parts)])
        back = Exchange.apply(done, CHOICES * tokens).view(tokens, CHOICES, -1)
        return (back * weights.to(back.dtype).unsqueeze(-1)).sum(1)


class Layer(nn.Module):
    def __init__(self, width, inner, count, draw):
        super().__init__()
        self.count = count
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.experts = Experts(width, inner, draw)

    def forward(self, x):
        q, k, v = (heads(part, self.count) for part in self.qkv(self.norms[0](x)).chunk(3, dim=-1))
        x = x + self.project(joined(attend(q, k, v)))
        return x + self.experts(self.norms[1](x).flatten(0, 1)).view_as(x)


class Model(nn.Module):
    def __init__(self, vocabulary, width, inner, layers, count, draw):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, inner, count, draw) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def main():
    options = arguments(__doc__, 30, SHAPES)
    shape, length = options.model
    Exchange.stream = torch.npu.Stream()
    model = build(lambda: Model(*shape, options.draw), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(number):
        tokens = torch.zeros(2, length, dtype=torch.long).to(DEVICE)
        loss = language_loss(model(tokens), tokens)
        loss.backward()
        update(optimizer, clipped=model)
        if number % 5 == 4:
            loss.item()
        return "trained"

    run(options.steps, step)


if __name__ == "__main__":
    main()
