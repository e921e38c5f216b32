"""Writes the allocation trace of a made-up language-model server, for docs/tutorial-oom.md.

Requests come and go; while one runs, each layer's cache of keys and values is replaced by a slightly
larger one at every step (torch.cat).
"""

import gzip
import random
import sys

MIB = 1 << 20
LAYERS = 24
RUNNING = 6
STEPS = 400
TOKENS_AT_ONCE = 16


def main(path):
    random.seed(7)
    with gzip.open(path, "wt") as out:
        out.write("# npualloc-trace v1\n# workload a made-up language-model server\n")
        blocks = 0

        def allocate(size):
            nonlocal blocks
            out.write(f"a {blocks} {size} 0\n")
            blocks += 1
            return blocks - 1

        out.write("m load the model\n")
        for _ in range(LAYERS):
            allocate(96 * MIB)
        requests = []
        for step in range(STEPS):
            out.write(f"m step {step}\n")
            if len(requests) < RUNNING:
                tokens = random.randrange(64, 3000)
                cache = [allocate(tokens * 4096) for _ in range(LAYERS)]
                requests.append([tokens, random.randrange(20, 120), cache])
            for request in requests:
                request[0] += TOKENS_AT_ONCE
                request[1] -= 1
                for layer, old in enumerate(request[2]):
                    larger = allocate(request[0] * 4096)
                    scores = allocate(request[0] * 1024)
                    out.write(f"f {scores}\nf {old}\n")
                    request[2][layer] = larger
            for request in [one for one in requests if one[1] <= 0]:
                for block in request[2]:
                    out.write(f"f {block}\n")
                requests.remove(request)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: serving_trace.py FILE")
    main(sys.argv[1])
