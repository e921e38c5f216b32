"""Trains a policy by GRPO: it generates, with a cache of keys and values that grows and samples that end one after
another; a frozen reference scores; the policy trains. Between phases the cache of the allocator is emptied."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from workload import DEVICE, Gated, RMSNorm, arguments, attend, build, heads, joined, run, update

SAMPLES = 48
AT_ONCE = 8


# Words, width, inner width, layers, heads; places of the longest answer.
SHAPES = {
    "usual": ((100352, 2048, 5632, 20, 16), 700),
    "narrow": ((151936, 1536, 4608, 16, 12), 1000),
    "tiny": ((512, 64, 128, 2, 4), 40),
}


class Layer(nn.Module):
    def __init__(self, width, inner, count):
        super().__init__()
        self.count = count
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(2))
        self.q, self.k, self.v, self.project = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.feed_forward = Gated(width, inner)

    def forward(self, x, cache=None):
        y = self.norms[0](x)
        q, k, v = (heads(part(y), self.count) for part in (self.q, self.k, self.v))
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
            cache[:] = [k, v]
        x = x + self.project(joined(attend(q, k, v)))
        return x + self.feed_forward(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, vocabulary, width, inner, layers, count):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, inner, count) for _ in range(layers))
        self.norm = RMSNorm(width)

    def forward(self, tokens, caches=None, recompute=False):
        x = self.tokens(tokens)
        for number, layer in enumerate(self.layers):
            if recompute:
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x, caches[number] if caches else None)
        if caches:
            x = x[:, -1:]
        return F.linear(self.norm(x), self.tokens.weight)

    def scores(self, tokens, recompute=False):
        logits = self(tokens, recompute=recompute)[:, :-1].float()
        return F.log_softmax(logits, dim=-1).gather(2, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def generate(model, prompt, lengths):
    """The tokens, place by place, of samples that end after so many; those at their end leave the batch by eights."""
    caches = [[] for _ in model.layers]
    tokens = torch.zeros(len(lengths), prompt, dtype=torch.long).to(DEVICE)
    running, done, made = len(lengths), 0, []
    while running:
        logits = model(tokens, caches)[:, -1].float()
        tokens = torch.multinomial(F.softmax(logits / 0.9, dim=-1), 1)
        made.append(tokens)
        done += 1
        left = sum(length > done for length in lengths)
        if left and left > running - AT_ONCE:
            continue
        running = left
        if left:
            kept = torch.zeros(left, dtype=torch.long, device=DEVICE)
            caches = [[part.index_select(0, kept) for part in cache] for cache in caches]
            tokens = tokens.index_select(0, kept)
    return made


def main():
    options = arguments(__doc__, 3, SHAPES)
    shape, longest = options.model
    draw = options.draw
    policy = build(lambda: Model(*shape), torch.bfloat16)
    reference = build(lambda: Model(*shape), torch.bfloat16).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)

    def train(batches, references, before):
        order = list(range(len(batches)))
        draw.shuffle(order)
        for at in order:
            now = policy.scores(batches[at].to(DEVICE), recompute=True)
            ratio = (now - before[at]).exp()
            apart = (references[at] - now).exp() - (references[at] - now) - 1
            loss = (0.04 * apart - torch.minimum(ratio, ratio.clamp(0.8, 1.2))).mean()
            del now, ratio, apart
            loss.backward()
        update(optimizer, clipped=policy)
        loss.item()

    def step(_):
        prompt = draw.randint(8, 16) if options.tiny else draw.randint(64, 400)
        lengths = sorted(min(longest, max(20, int(draw.lognormvariate(5.0, 0.6)))) for _ in range(SAMPLES))
        generate(policy, prompt, lengths)
        torch.npu.synchronize()
        torch.npu.empty_cache()
        batches = [
            torch.zeros(AT_ONCE, prompt + lengths[first + AT_ONCE - 1], dtype=torch.long)
            for first in range(0, SAMPLES, AT_ONCE)
        ]
        with torch.no_grad():
            references = [reference.scores(batch.to(DEVICE)) for batch in batches]
            before = [policy.scores(batch.to(DEVICE)) for batch in batches]
        for _ in range(2):
            train(batches, references, before)
        del references, before
        torch.npu.empty_cache()
        return f"prompt {prompt}, up to {lengths[-1]} tokens"

    run(options.steps, step)


if __name__ == "__main__":
    main()
