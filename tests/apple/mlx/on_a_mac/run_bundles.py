# SPDX-License-Identifier: Apache-2.0
"""Golden vectors and a short run through the device core's engine `mlx`: python3 run_bundles.py FOLDER CORE [cpu] [gpu]

FOLDER is what `python -m tests.apple.mlx.vectors FOLDER` wrote, CORE the program bespoke-core with the engine beside it. For each
device: how much of their tolerances the golden vectors take, seconds, the losses of five steps beside torch's, and the footprint
that the core read of its process (phys_footprint on a Mac). It needs the standard library, and exits with 1 where something does
not hold. On the processor it ran on Linux; on a Mac, and on Metal, nobody has run it yet.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

APART = 1e-4  # largest difference from torch's loss: Metal adds in another order than a processor


class Refused(Exception):
    """What the core says, or how it ended."""


def asked(core: str, **request: object) -> dict:
    """The report of a process of the core."""
    line = json.dumps({"threads": 0, "engine": "mlx", "memory_mb": -1, **request}).encode() + b"\n"
    done = subprocess.run([core], input=line, stdout=subprocess.PIPE)
    last = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    if last.get("event") == "report":
        return last["report"]
    words = [f"{last['subject']}: got {last['got']}; expected {last['expected']}"] if "subject" in last else []
    raise Refused(*words or [f"it ended with {done.returncode}"])


def run_device(folder: Path, core: str, device: str, state: Path) -> bool:
    """Whether everything holds."""
    shutil.copytree(folder / "state", state)
    where = {"bundle": str(folder / f"{device}.bundle"), "state": str(state)}
    golden = asked(core, verb="verify", **where)
    for check in golden["checks"]:
        if check["what"] != "files":
            print(device, "golden", check["what"], check["method"] or "", f"{check['worst']:.1%} of the tolerance")
    print(device, "golden vectors", f"{golden['seconds']:.3f} s")
    run = json.loads((folder / "run.json").read_text())
    report = asked(core, verb="train", method=run["method"], run_steps=run["steps"], seed=run["seed"], **where)
    pairs = zip(report["losses"], run["losses"])  # noqa: B905  (`strict` came after the Python 3.9 that a Mac brings)
    apart = max(abs(got / wanted - 1) for got, wanted in pairs)
    seconds = " ".join(f"{step:.3f}" for step in report["step_seconds"])
    print(device, "steps", report["steps"], "losses apart from torch's by", f"{apart:.1e}", "seconds of each", seconds)
    print(device, "footprint", report["memory"]["peak_bytes"], "bytes at most")
    return report["steps"] == run["steps"] and apart <= APART


def main(folder: str, core: str, *devices: str) -> int:
    held = True
    for device in devices or ("cpu", "gpu"):
        with tempfile.TemporaryDirectory() as state:
            try:
                held = run_device(Path(folder), core, device, Path(state) / "state") and held
            except Refused as problem:
                print(device, "refused:", problem)
                held = False
    print("all of it holds" if held else "not all of it holds")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
