# SPDX-License-Identifier: Apache-2.0
"""Steps of the device core with one thread, with two, and with a pool of four of which it chooses, in turns.

On this machine's own cores, and with cores that are not alike: a control group for each slow thread gives it a share of the time,
in periods that are short beside a product. The slow ones are those of the pool of four that come last, and become slow after the
first step: so the core has to notice. The smaller pool that it then makes has threads of its own, which nobody slows. Seconds a
step are shown as multiples of those with two threads: medians of the ratios within rounds, and of the last ones. It is printed, and
stands on no page. Needs two idle cores and a `cpu` controller of cgroup v1 in which groups can be made.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.core_bundles import Bundle, Wanted
from tests.benchmarks.core_process import fresh_state, warm
from tests.benchmarks.figures import Cell, markdown
from tests.benchmarks.paced import PacedCore, paired_ratio, take_turns
from tests.support.models import tiny_model

CONTROLLER = Path("/sys/fs/cgroup/cpu")
PERIOD_US, SHARE_US = 5000, 1000
POOL, SLOW = 4, 2  # threads
LENGTH, ROUNDS, LAST = 256, 18, 6
SHAPE: dict[str, Any] = {  # two of the 24 blocks of Qwen2.5-0.5B, and less of a vocabulary
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_hidden_layers": 2,
    "vocab_size": 8192,
}
FIXED, CHOSEN = {"1": 1, "2": 2}, f"chosen of {POOL}"
HEADER = ("cores", "1 thread", "2 threads", "chosen, last steps", "chosen, slowest step")
NO_COMMITS = {"commit_seconds": 3600.0}


class SlowedCore(PacedCore):
    """Its last threads get a share of a core, once the first step has shown which they are."""

    def __enter__(self) -> SlowedCore:
        super().__enter__()
        self._groups: list[Path] = []
        busy = sorted(threads_of(self._process.pid), key=lambda thread: thread[1])[-POOL:]
        for number, thread in enumerate(sorted(thread for thread, _ in busy)[-SLOW:]):
            group = CONTROLLER / f"bespoke_{self._process.pid}_{number}"
            group.mkdir()
            self._groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(SHARE_US))
            (group / "tasks").write_text(str(thread))
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        while self._groups:
            self._groups.pop().rmdir()


def threads_of(process: int) -> list[tuple[int, int]]:
    """Each thread, and the clock ticks that it has run."""
    found = []
    for folder in Path(f"/proc/{process}/task").iterdir():
        ticks = (folder / "stat").read_text().rpartition(")")[2].split()
        found.append((int(folder.name), int(ticks[11]) + int(ticks[12])))
    return found


@contextmanager
def runners(bundle: Bundle, *, slowed: bool) -> Iterator[list[PacedCore]]:
    kind = SlowedCore if slowed else PacedCore
    made = []
    with ExitStack() as stack:
        for name, threads in {**FIXED, CHOSEN: POOL}.items():
            state = stack.enter_context(fresh_state(bundle, f"threads_{threads}"))
            of_kind = kind if threads == POOL else PacedCore
            made.append(of_kind(name, bundle, state, ROUNDS + 20, threads, settings=NO_COMMITS, cut=True))
        yield made


@pytest.mark.benchmark
def test_the_core_keeps_a_good_number_of_threads(tmp_path: Path) -> None:
    from bespoke import Personalizer, Training

    assert len(os.sched_getaffinity(0)) == 2, "two cores: taskset -c 0,1"
    assert os.access(CONTROLLER / "tasks", os.W_OK), f"no groups can be made under {CONTROLLER}"
    training = Training(sequence_lengths=(LENGTH,), steps=ROUNDS + 20)
    model = tiny_model("qwen2", tmp_path / "model", **SHAPE)
    path = tmp_path / "bundle"
    Personalizer(
        model, {"mesp": {"update": "sgd"}}, "executorch", training=training, rehearsal=False, licence="none", data=None
    ).build(path)
    bundle = Bundle(path, Wanted("two blocks", "mesp", LENGTH, None))
    warm(bundle)
    rows: list[list[Cell]] = []
    for cores, slowed in (("as they are", False), (f"{SLOW} threads get {SHARE_US / PERIOD_US:.0%} of a core", True)):
        with runners(bundle, slowed=slowed) as made:
            seconds = take_turns(made, ROUNDS)
        one, two, chosen = (seconds[name] for name in (*FIXED, CHOSEN))
        last = paired_ratio(chosen[-LAST:], two[-LAST:])
        slowest = max(a / b for a, b in zip(chosen, two, strict=True))
        rows.append([cores, paired_ratio(one, two), 1.0, last, slowest])
        print(rows[-1], f"{statistics.median(two):.3f} s", flush=True)
    print(markdown(HEADER, rows))
    assert all(float(row[3] or 0) < 1.15 for row in rows), rows
