# SPDX-License-Identifier: Apache-2.0
"""Limits of requests a minute: one bucket of tokens for each device or address, in memory."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict

from bespoke_federated.clock import Clock
from bespoke_federated.problems import RequestError

__all__ = ["Buckets", "network_of"]

MOST_BUCKETS = 50_000  # of the oldest nothing is known any more
IPV6_NETWORK = 64  # bits that one customer has all addresses of


class Buckets:
    """Buckets by key. A full one holds the requests of a minute, and it fills evenly."""

    def __init__(self, a_minute: int, subject: str, clock: Clock) -> None:
        self._most, self._a_second = float(a_minute), a_minute / 60
        self._subject, self._clock, self._lock = subject, clock, threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> tokens, when

    def take(self, key: str) -> None:
        """Takes a token. Raises RequestError where there is none."""
        now = self._clock.running()
        with self._lock:
            tokens, then = self._buckets.pop(key, (self._most, now))
            tokens = min(self._most, tokens + (now - then) * self._a_second)
            self._buckets[key] = (tokens - 1 if tokens >= 1 else tokens, now)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        if tokens < 1:
            raise RequestError(
                self._subject,
                got="too many requests",
                expected=f"at most {self._most:g} a minute",
                next_step="Wait as long as Retry-After says",
                status=429,
                retry_seconds=(1 - tokens) / self._a_second,
            )


def network_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, IPV6_NETWORK), strict=False))
