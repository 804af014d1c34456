# SPDX-License-Identifier: Apache-2.0
"""Silence for libraries that print warnings at import which a user of bespoke cannot act on."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_imports"]

_TALKATIVE = ("torch.utils._pytree", "torchao")  # transformers imports it if it is installed


@contextmanager
def quiet_imports(*loggers: str) -> Iterator[None]:
    """Hide warnings while the body runs, and all messages of these loggers but errors."""
    levels = {name: logging.getLogger(name).level for name in (*_TALKATIVE, *loggers)}
    try:
        for name in levels:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
