# SPDX-License-Identifier: Apache-2.0
"""Imports of libraries that say much while they are imported, none of which a user of bespoke can act on."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_imports"]

_TALKATIVE = ("torch.utils._pytree", "torchao")  # what transformers imports where it is installed


@contextmanager
def quiet_imports(*loggers: str) -> Iterator[None]:
    """No warning is shown meanwhile, and of these loggers errors alone."""
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
