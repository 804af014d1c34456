# SPDX-License-Identifier: Apache-2.0
"""Imports ExecuTorch, which is slow and says much while it is imported."""

from __future__ import annotations

import logging
import warnings
from functools import cache

from bespoke.errors import MissingDependency

_TALKATIVE = ("torch.utils._pytree", "executorch", "torchao", "root")


@cache
def load_executorch() -> None:
    """Raises MissingDependency where it is not installed."""
    levels = {name: logging.getLogger(name).level for name in _TALKATIVE}
    try:
        for name in levels:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import executorch.backends.xnnpack.serialization.xnnpack_graph_serialize
            import executorch.exir._serialize._program  # noqa: F401
    except ImportError:
        raise MissingDependency.of("Target 'executorch'", "executorch", "executorch") from None
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
