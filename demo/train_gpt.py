"""Trains a GPT-style language model on an Ascend NPU.

An ordinary training script: torch and torch_npu, bf16 autocast over fp32
weights, AdamW, warm-up and cosine decay, gradient accumulation and clipping,
batches prefetched on a stream of their own, sequences of mixed lengths, an
evaluation now and then. The text is random tokens from a seeded generator.
It knows nothing of the allocator that serves it.
"""

import argparse
import json
import math
import time

import torch
import torch_npu  # noqa: F401  (makes the "npu" device known)
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Pre-norm transformer block with causal self-attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_attention(x)).split(width, dim=2)
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for t in (q, k, v)
        )
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(width // self.heads))
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        mixed = (weights.to(v.dtype) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(mixed)
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class GPT(nn.Module):
    """Decoder-only language model with tied embeddings."""

    def __init__(self, vocabulary, context, width, layers, heads):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        length = tokens.shape[1]
        positions = torch.arange(length, device=tokens.device)
        mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x, mask)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Batches:
    """Random batches of about `budget` tokens each; the length changes from
    one to the next. Copies run ahead on a stream of their own."""

    def __init__(self, seed, vocabulary, context, budget, device):
        self.generator = torch.Generator().manual_seed(seed)
        self.vocabulary = vocabulary
        self.lengths = [length for length in range(128, context + 1, 64)]
        self.budget = budget
        self.device = device
        self.stream = torch.npu.Stream(device)
        self.ahead = self.fetch()

    def fetch(self):
        pick = torch.randint(len(self.lengths), (), generator=self.generator)
        length = self.lengths[int(pick)]
        rows = max(1, self.budget // length)
        text = torch.randint(
            self.vocabulary, (rows, length + 1), generator=self.generator
        ).pin_memory()
        with torch.npu.stream(self.stream):
            return text.to(self.device, non_blocking=True)

    def next(self):
        current = torch.npu.current_stream(self.device)
        current.wait_stream(self.stream)
        batch = self.ahead
        batch.record_stream(current)
        self.ahead = self.fetch()
        return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--context", type=int, default=1536)
    parser.add_argument("--vocabulary", type=int, default=50304)
    parser.add_argument("--tokens", type=int, default=6144, help="of one micro-batch")
    parser.add_argument("--evaluate", type=int, default=10, help="steps between evaluations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", help="file for the losses, as JSON")
    return parser.parse_args()


def schedule(step, steps, warmup=5):
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def main():
    args = parse()
    torch.manual_seed(args.seed)
    device = torch.device("npu:0")
    torch.npu.set_device(device)
    with device:
        model = GPT(args.vocabulary, args.context, args.width, args.layers, args.heads)
    count = sum(p.numel() for p in model.parameters())
    print(f"model: {count / 1e9:.2f} B parameters", flush=True)

    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=3e-4,
        betas=(0.9, 0.95),
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: schedule(step, args.steps)
    )
    train = Batches(args.seed, args.vocabulary, args.context, args.tokens, device)
    test = Batches(args.seed + 1, args.vocabulary, args.context, args.tokens, device)

    losses = []
    for step in range(1, args.steps + 1):
        start = time.perf_counter()
        total = torch.zeros((), device=device)
        for _ in range(args.accumulate):
            tokens, targets = train.next()
            with torch.autocast("npu", dtype=torch.bfloat16):
                loss = model(tokens, targets) / args.accumulate
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total.item())
        took = time.perf_counter() - start
        print(
            f"step {step}/{args.steps} loss {losses[-1]:.4f} tokens {tuple(tokens.shape)} "
            f"{took * 1e3:.0f} ms",
            flush=True,
        )
        if step % args.evaluate == 0:
            model.eval()
            with torch.no_grad(), torch.autocast("npu", dtype=torch.bfloat16):
                value = model(*test.next()).item()
            model.train()
            print(f"evaluation after step {step}: loss {value:.4f}", flush=True)

    if args.log:
        with open(args.log, "w", encoding="utf-8") as file:
            json.dump(losses, file)


if __name__ == "__main__":
    main()
