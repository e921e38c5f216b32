"""Forks a process for each request, since importing torch takes seconds.

torch and torch_npu are imported here and the device is never touched, so that
each child starts as a process that has just imported them. Reads requests from
standard input and answers each with the child's exit status, one JSON a line.
"""

import json
import os
import sys

import torch  # noqa: F401
import torch_npu  # noqa: F401

from harness.child import perform


def fork(request):
    """Starts a child for the request; returns its process id, or 0 in the child."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        # Replies go through the old standard output; the child must not write there.
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
    return pid


def main():
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = fork(request)
        if pid == 0:
            perform(request)
            # Leaves as a script does, through torch_npu's own shutdown.
            return
        _, status = os.waitpid(pid, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


if __name__ == "__main__":
    main()
