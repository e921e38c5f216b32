"""Forks a process for each request, since importing torch takes seconds.

torch and torch_npu are imported by `main` and the device is never touched, so that
each child starts as a process that has just imported them; or neither is, and each
child imports what it needs. Reads requests from standard input and answers each with the child's exit status, one JSON a line.
"""

import gc
import json
import os
import sys

# Answers keep the old standard output to themselves; whatever the libraries
# print goes elsewhere.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from harness.child import perform  # noqa: E402


def answer(value):
    """Writes one answer."""
    print(json.dumps(value), file=ANSWERS, flush=True)


def fork(request):
    """Starts a child for the request; returns its process id, or 0 in the child."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
    return pid


def main(ready=True):
    if ready:
        import torch  # noqa: F401
        import torch_npu  # noqa: F401
    gc.freeze()
    answer("ready")
    for line in sys.stdin:
        request = json.loads(line)
        pid = fork(request)
        if pid == 0:
            perform(request)
            # Leaves as a script does, through torch_npu's own shutdown.
            return
        _, status = os.waitpid(pid, 0)
        answer(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
