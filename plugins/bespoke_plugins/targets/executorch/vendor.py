# SPDX-License-Identifier: Apache-2.0
"""Imports ExecuTorch quietly. The import is slow and prints a lot."""

from __future__ import annotations

from functools import cache
from typing import get_type_hints

from bespoke.contracts import quiet_imports
from bespoke.errors import MissingDependency


@cache
def load_executorch() -> None:
    """Raises MissingDependency if it is not installed."""
    try:
        with quiet_imports("executorch", "root"):
            import executorch.backends.xnnpack.serialization.xnnpack_graph_serialize
            import executorch.exir._serialize._program  # noqa: F401
            from executorch.exir._serialize import _dataclass
    except ImportError:
        raise MissingDependency.of("Target 'executorch'", "executorch", "executorch") from None
    # Its encoder asks for the hints of a class at each field of each object: half the time of compiling a small graph.
    _dataclass.get_type_hints = cache(get_type_hints)
