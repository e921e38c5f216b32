"""Trains a gated graph convolution. Each batch is a graph of another size, copied ahead on a stream of its own."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from workload import DEVICE, arguments, build, run, update

OF_NODE = 128
OF_EDGE = 16
CLASSES = 172
EVALUATED = 4


# Width, layers; nodes of a typical graph.
SHAPES = {"usual": ((256, 8), 22000), "tiny": ((32, 2), 200)}


class Convolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.begin, self.end, self.edge, self.keep, self.send = (nn.Linear(width, width) for _ in range(5))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, nodes, edges, begins, ends):
        at_ends = self.begin(nodes).index_select(0, begins) + self.end(nodes).index_select(0, ends)
        gates = at_ends + self.edge(edges)
        weights = torch.sigmoid(gates)
        sent = weights * self.send(nodes).index_select(0, begins)
        total = torch.zeros_like(nodes).index_add(0, ends, sent)
        weight = torch.zeros_like(nodes).index_add(0, ends, weights)
        nodes = nodes + F.relu(self.norms[0](self.keep(nodes) + total / (weight + 1e-6)))
        return nodes, edges + F.relu(self.norms[1](gates))


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.nodes = nn.Linear(OF_NODE, width)
        self.edges = nn.Linear(OF_EDGE, width)
        self.layers = nn.ModuleList(Convolution(width) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))

    def forward(self, nodes, edges, begins, ends):
        nodes, edges = self.nodes(nodes), self.edges(edges)
        for layer in self.layers:
            nodes, edges = layer(nodes, edges, begins, ends)
        return self.out(nodes)


class Graphs:
    """Graphs of random sizes, each copied while the one before is worked on."""

    def __init__(self, typical, draw):
        self.draw = draw
        self.typical = typical
        self.stream = torch.npu.Stream()
        # What is copied does not matter, only that it is pinned.
        self.pinned = torch.empty(1 << 26, dtype=torch.uint8).pin_memory()
        self.ahead = self.fetch()

    def copy(self, dtype, *shape):
        size = math.prod(shape) * dtype.itemsize
        return self.pinned[:size].view(dtype).view(shape).to(DEVICE, non_blocking=True)

    def fetch(self):
        nodes = self.typical * self.draw.lognormvariate(0, 0.5)
        nodes = int(min(2.7 * self.typical, max(0.1 * self.typical, nodes)))
        edges = min(int(nodes * self.draw.uniform(6, 14)), 36 * self.typical)
        with torch.npu.stream(self.stream):
            graph = [
                self.copy(torch.float32, nodes, OF_NODE),
                self.copy(torch.float32, edges, OF_EDGE),
                self.copy(torch.int64, edges),
                self.copy(torch.int64, edges),
                self.copy(torch.int64, nodes),
            ]
        return graph, self.stream.record_event()

    def next(self):
        (graph, ready), current = self.ahead, torch.npu.current_stream()
        current.wait_event(ready)
        for part in graph:
            part.record_stream(current)
        self.ahead = self.fetch()
        return graph


def main():
    options = arguments(__doc__, 400, SHAPES)
    shape, typical = options.model
    model = build(lambda: Model(*shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    graphs = Graphs(typical, options.draw)

    def step(number):
        *graph, classes = graphs.next()
        name = f"{graph[0].shape[0]} nodes, {graph[1].shape[0]} edges"
        loss = F.cross_entropy(model(*graph), classes)
        loss.backward()
        update(optimizer)
        if number % 10 == 9:
            loss.item()
        del graph, classes
        if number % 50 == 49:
            with torch.no_grad():
                for _ in range(EVALUATED):
                    *graph, _ = graphs.next()
                    model(*graph).argmax(-1).cpu()
        return name

    run(options.steps, step)


if __name__ == "__main__":
    main()
