"""Forks a server for each environment, since most of what torch_npu imports is not its own.

torch, and what of it torch_npu imports, is imported here; torch_npu itself, which reads the
environment, is not. Reads requests for a server from the socket whose number is the first argument,
each with the server's standard input and output, and answers with its process id: the variables to
be added, and whether it is to have torch_npu imported.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: Bytes of a request: far more than an environment has.
MOST = 1 << 16
#: Takes longest of what torch_npu imports.
MODULES = (
    "torch",
    "torch._decomp",
    "torch._meta_registrations",
    "torch.distributed.tensor",
    "torch.export",
)


def import_torch():
    """Without torch_npu, which torch would import as well."""
    before = os.environ.get(AUTOLOAD)
    os.environ[AUTOLOAD] = "0"
    for module in MODULES:
        importlib.import_module(module)
    del os.environ[AUTOLOAD]
    if before is not None:
        os.environ[AUTOLOAD] = before


def serve(requests, ends, env, ready):
    """In a child: becomes a server."""
    requests.close()
    for number, end in enumerate(ends):
        os.dup2(end, number)
        os.close(end)
    os.environ.update(env)
    server = importlib.import_module("harness.server")
    server.main(ready)


def main():
    requests = socket.socket(fileno=int(sys.argv[1]))
    import_torch()
    gc.freeze()
    while True:
        text, ends, _, _ = socket.recv_fds(requests, MOST, 2)
        if not text:
            return
        pid = os.fork()
        if pid == 0:
            serve(requests, ends, **json.loads(text))
            return
        for end in ends:
            os.close(end)
        requests.sendall(f"{pid}\n".encode())


if __name__ == "__main__":
    # Nobody asks how a server ended. It has children of its own, which it does ask.
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGCHLD, signal.SIG_DFL))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    main()
