"""Trains a latent diffusion model: fp32 weights and a running average of them, pictures of nine shapes encoded on the
way, and from time to time pictures are sampled and decoded."""

import torch
from torch import nn
from torch.nn import functional as F
from workload import DEVICE, arguments, build, run, update

PICTURES = [(512, 512), (448, 576), (576, 448), (384, 640), (640, 384), (512, 640), (640, 512), (768, 512), (512, 768)]
NARROW = torch.bfloat16
# Widths of the model's levels, width of the coders, what weights are, and by how much pictures are smaller.
SHAPES = {
    "usual": ((320, 640, 1280, 1280), 128, torch.float32, 1),
    "narrow": ((192, 384, 768, 768), 128, torch.float32, 1),
    "bf16": ((384, 768, 1536, 1536), 128, NARROW, 1),
    "tiny": ((64, 64, 64, 64), 32, torch.float32, 8),
}
OF_HEAD = 64
OF_TEXT = 768
OF_TIME = 320
SAMPLED = 8


class Residual(nn.Module):
    def __init__(self, before, after, time=None):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(32, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.second = nn.Sequential(nn.GroupNorm(32, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)
        self.time = nn.Linear(time, after) if time else None

    def forward(self, x, time=None):
        y = self.first(x)
        if self.time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(y)


class Attention(nn.Module):
    def __init__(self, width, other):
        super().__init__()
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(other, width, bias=False) for _ in range(2))
        self.project = nn.Linear(width, width)

    def forward(self, x, other):
        def split(y):
            return y.unflatten(-1, (-1, OF_HEAD)).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(other)), split(self.v(other))
        weights = F.softmax(q @ k.transpose(-1, -2), dim=-1)
        return self.project((weights @ v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.itself, self.text = Attention(width, width), Attention(width, OF_TEXT)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, text):
        y = self.norm(x).flatten(2).transpose(1, 2)
        z = self.norms[0](y)
        y = y + self.itself(z, z)
        y = y + self.text(self.norms[1](y), text)
        value, gate = self.up(self.norms[2](y)).chunk(2, dim=-1)
        y = y + self.down(value * F.gelu(gate))
        return x + y.transpose(1, 2).view_as(x)


class Stage(nn.Module):
    """Residual blocks, each with attention unless the stage is the innermost one."""

    def __init__(self, pairs, time, attends):
        super().__init__()
        self.blocks = nn.ModuleList(Residual(before, after, time) for before, after in pairs)
        self.attention = nn.ModuleList(Transformer(after) for _, after in pairs if attends)

    def forward(self, at, x, time, text):
        x = self.blocks[at](x, time)
        return self.attention[at](x, text) if len(self.attention) else x


class Denoiser(nn.Module):
    def __init__(self, widths):
        super().__init__()
        time, last = 4 * widths[0], len(widths) - 1
        self.time = nn.Sequential(nn.Linear(OF_TIME, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        down, up, smaller, larger, kept, now = [], [], [], [], [widths[0]], widths[0]
        for level, width in enumerate(widths):
            down.append(Stage([(now, width), (width, width)], time, level < last))
            kept += [width, width]
            now = width
            if level < last:
                smaller.append(nn.Conv2d(now, now, 3, 2, 1))
                kept.append(now)
        self.middle = Stage([(now, now), (now, now)], time, True)
        for level, width in reversed(list(enumerate(widths))):
            pairs = []
            for _ in range(3):
                pairs.append((now + kept.pop(), width))
                now = width
            up.append(Stage(pairs, time, level < last))
            if level:
                larger.append(nn.Conv2d(now, now, 3, padding=1))
        self.down, self.up = nn.ModuleList(down), nn.ModuleList(up)
        self.smaller, self.larger = nn.ModuleList(smaller), nn.ModuleList(larger)
        self.leave = nn.Sequential(nn.GroupNorm(32, now), nn.SiLU(), nn.Conv2d(now, 4, 3, padding=1))

    def forward(self, x, time, text):
        time = self.time(time)
        x = self.enter(x)
        kept = [x]
        for level, stage in enumerate(self.down):
            for at in range(2):
                x = stage(at, x, time, text)
                kept.append(x)
            if level < len(self.smaller):
                x = self.smaller[level](x)
                kept.append(x)
        for at in range(2):
            x = self.middle(at, x, time, text)
        for level, stage in enumerate(self.up):
            for at in range(3):
                skipped = kept.pop()
                if x.shape[-2:] != skipped.shape[-2:]:
                    x = F.interpolate(x, size=skipped.shape[-2:])
                x = stage(at, torch.cat([x, skipped], dim=1), time, text)
            if level < len(self.larger):
                x = self.larger[level](F.interpolate(x, scale_factor=2.0))
        return self.leave(x)


def coder(enter, widths, times, between, leave):
    """An encoder or a decoder of pictures."""
    layers, now = [nn.Conv2d(enter, widths[0], 3, padding=1)], widths[0]
    for level, width in enumerate(widths):
        for _ in range(times):
            layers.append(Residual(now, width))
            now = width
        if level < len(widths) - 1:
            layers += between(now)
    return nn.Sequential(*layers, nn.Conv2d(now, leave, 3, padding=1))


def encoder(width):
    widths = [width, 2 * width, 4 * width, 4 * width]
    return coder(3, widths, 2, lambda now: [nn.Conv2d(now, now, 3, 2, 1)], 8)


def decoder(width):
    widths = [4 * width, 4 * width, 2 * width, width]
    return coder(4, widths, 3, lambda now: [nn.Upsample(scale_factor=2.0), nn.Conv2d(now, now, 3, padding=1)], 3)


def main():
    options = arguments(__doc__, 60, SHAPES)
    widths, width, weights, scale = options.model
    model = build(lambda: Denoiser(widths), weights)
    average = build(lambda: Denoiser(widths), weights).requires_grad_(False)
    encode = build(lambda: encoder(width), NARROW).requires_grad_(False)
    decode = build(lambda: decoder(width), NARROW).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    @torch.no_grad()
    def sample():
        noise = torch.empty(SAMPLED, 4, 64 // scale, 64 // scale, device=DEVICE)
        text = torch.empty(2 * SAMPLED, 77, OF_TEXT, device=DEVICE)
        time = torch.empty(2 * SAMPLED, OF_TIME, device=DEVICE)
        with torch.autocast("npu", dtype=NARROW):
            for _ in range(8):
                without, guided = average(torch.cat([noise, noise]), time, text).chunk(2)
                noise = noise * 0.9 + (without + 7.5 * (guided - without)).float() * 0.1
            decode(noise.to(NARROW)).float().cpu()

    def step(number):
        height, width = (size // scale for size in options.draw.choice(PICTURES))
        batch = 6 if height * width * scale**2 <= 300_000 else 4
        with torch.no_grad():
            pictures = torch.zeros(batch, 3, height, width, dtype=NARROW).to(DEVICE)
            latent = encode(pictures)[:, :4].float() * 0.18
            del pictures
            noise = torch.randn_like(latent)
            noisy = latent * 0.5 + noise * 0.8
            text = torch.empty(batch, 77, OF_TEXT, device=DEVICE)
            time = torch.empty(batch, OF_TIME, device=DEVICE)
        with torch.autocast("npu", dtype=NARROW):
            found = model(noisy, time, text)
        loss = F.mse_loss(found.float(), noise)
        loss.backward()
        update(optimizer, clipped=model)
        torch._foreach_mul_(list(average.parameters()), 0.999)
        torch._foreach_add_(list(average.parameters()), [it.detach() for it in model.parameters()], alpha=0.001)
        if number % 10 == 9:
            loss.item()
        if number % 15 == 14:
            sample()
        return f"{batch} x {height} x {width}"

    run(options.steps, step)


if __name__ == "__main__":
    main()
