# SPDX-License-Identifier: Apache-2.0
"""Figures as Prometheus reads them. What is counted here begins at zero with the process. The rest comes from the store."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping

from bespoke.bundle.federation_record import FederationRecord
from bespoke.rules.privacy import epsilon, rho_of
from bespoke_federated.store import Store

__all__ = ["DELTA", "Metrics"]

DELTA = 1e-5  # that goes with epsilon, as on the devices


class Metrics:
    """Counters of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()
        self._requests: Counter[int] = Counter()
        self._bytes: Counter[str] = Counter()

    def refused(self, reason: str) -> None:
        """Counts numbers that do not count."""
        with self._lock:
            self._refused[reason] += 1

    def request(self, status: int, came: int, went: int) -> None:
        """Counts a request, and the bytes of its body and of the answer's."""
        with self._lock:
            self._requests[status] += 1
            self._bytes["in"] += came
            self._bytes["out"] += went

    def text(self, store: Store, federation: FederationRecord) -> str:
        """All figures."""
        totals, last = store.totals(), store.last_ended()
        rho = rho_of([federation.noise] * totals["most_rounds"])
        lines = [
            *_figure("rounds_ended", "counter", "rounds that have ended", {"": last.number if last else 0}),
            *_figure("devices", "gauge", "devices that have enrolled", {"": store.device_count()}),
            *_figure(
                "numbers_counted", "counter", "numbers of devices in rounds, a round each", {"": totals["counted"]}
            ),
            *_figure("numbers_late", "counter", "numbers that came after their round", {"": totals["late"]}),
            *_figure("most_active_rho", "gauge", "privacy budget spent by the device that sent most", {"": rho}),
            *_figure(
                "most_active_epsilon", "gauge", f"the same as epsilon, delta {DELTA:g}", {"": epsilon(rho, DELTA)}
            ),
        ]
        with self._lock:
            reasons = {f'{{reason="{reason}"}}': count for reason, count in sorted(self._refused.items())}
            statuses = {f'{{status="{status}"}}': count for status, count in sorted(self._requests.items())}
            sizes = {f'{{direction="{way}"}}': self._bytes[way] for way in ("in", "out")}
        lines += _figure("numbers_refused", "counter", "numbers that do not count, by reason", reasons)
        lines += _figure("requests", "counter", "requests by status", statuses)
        lines += _figure("body_bytes", "counter", "bytes of bodies", sizes)
        return "\n".join(lines) + "\n"


def _figure(name: str, kind: str, text: str, values: Mapping[str, float]) -> list[str]:
    full = f"bespoke_{name}" + ("_total" if kind == "counter" else "")
    lines = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
    return lines + [f"{full}{labels} {_written(value)}" for labels, value in values.items()]


def _written(value: float) -> str:
    return "+Inf" if math.isinf(value) else f"{value:.10g}"
