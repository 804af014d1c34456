# SPDX-License-Identifier: Apache-2.0
"""Becomes the core under a limit. The parent runs this file by name, so the core is no fork of the parent.

    python -I -S launch.py '{"parent": PID, "cgroup": FOLDER or null, "kind": ..., "data_bytes": N or null}' PROGRAM

Writes {"event": "limit", "kind": ...} to stdout, then executes PROGRAM. Needs only the standard library. The kernel kills it with
the thread that started it, so process.py starts it from a thread that lives as long as its process.
"""

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    asked, program = json.loads(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # survives the exec
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # survives the exec, until the core handles it
    if os.getppid() != asked["parent"]:  # the parent ended before prctl
        os._exit(1)
    os.write(1, (json.dumps({"event": "limit", "kind": enter(asked)}) + "\n").encode())
    os.execv(program, [program])


def enter(asked: dict) -> str:
    """Puts this process under the limit. Returns what enforces it."""
    if asked["cgroup"] is not None:
        try:
            with open(os.path.join(asked["cgroup"], "cgroup.procs"), "w") as file:
                file.write(str(os.getpid()))
            return str(asked["kind"])
        except OSError:
            pass
    if asked["data_bytes"] is not None:
        try:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            limit = asked["data_bytes"] if hard == resource.RLIM_INFINITY else min(asked["data_bytes"], hard)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
            return "rlimit_data"
        except (OSError, ValueError):
            pass
    return "none"


if __name__ == "__main__":
    main()
