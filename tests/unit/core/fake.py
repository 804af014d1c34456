# SPDX-License-Identifier: Apache-2.0
"""Stands in for the compiled core: speaks its protocol, and does what the request's bundle is called."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

ERROR = {"kind": "StateLocked", "subject": "state", "got": "another trainer", "expected": "none", "next_step": "Wait"}


def step(number: int, loss: float | None) -> None:
    tell("progress", phase="step", step=number, steps=0, loss=loss, footprint_bytes=0)


def tell(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "report": more} if event == "report" else {"event": event, **more}), flush=True)


def main() -> int:
    request = json.loads(sys.stdin.readline())
    if request["verb"] == "version":
        tell("report", version="9.9", instruction_set="avx2")
        return 0
    asked: list[object] = []
    if request["bundle"] == "slow_start":
        time.sleep(0.3)
    threading.Thread(target=lambda: asked.append(json.loads(sys.stdin.readline() or "0")), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    does, _, amount = request["bundle"].partition(":")
    count = int(amount) if amount.isdigit() else 0
    if does == "steps":
        for number in range(1, count + 1):
            step(number, 1 / number if number % 4 else None)
            tell("progress", phase="commit", step=number, steps=0, loss=None, footprint_bytes=0)
    elif does in ("until_stopped", "slow_start"):
        step(1, 1.0)
        while not asked:
            time.sleep(0.005)
    elif does == "deaf":
        step(1, 1.0)
        time.sleep(1000)
    elif does == "mute":
        os.close(1)
        os.close(2)
        time.sleep(1000)
    elif does == "eat":
        held = [bytearray(b"x" * 10**6) for _ in range(count)]
        step(len(held), 0.0)
    elif does == "crash":
        print("something terrible", file=sys.stderr, flush=True)
        os.kill(os.getpid(), count)
    elif does == "silent":
        return count
    elif does == "noise":
        print("a library that writes to stdout\n[]\n7", flush=True)
    elif does == "error":
        tell("error", **{**ERROR, "kind": amount})
        return 9
    tell("report", asked=request, stopped=asked == [{"do": "cancel"}], pid=os.getpid(), parent=os.getppid())
    return 0


if __name__ == "__main__":
    sys.exit(main())
