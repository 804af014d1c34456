# SPDX-License-Identifier: Apache-2.0
"""Imports MLX, only in the version whose files our apps read."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from bespoke.errors import MissingDependency
from bespoke_plugins.targets.mlx.records import VERSION


@cache
def load_mlx() -> None:
    """Raises MissingDependency if MLX is not installed in this version. The format of `.mlxfn` depends on the version, and MLX does
    not check it when it reads a file."""
    try:
        installed = version("mlx")
        if installed != VERSION:
            raise MissingDependency(
                "Target 'mlx'",
                got=f"mlx {installed}",
                expected=f"mlx {VERSION}, whose files mlx-swift 0.31.3 to 0.31.6 read",
                next_step="pip install 'bespoke-sdk[mlx]'",
            )
        import mlx.core  # noqa: F401
    except (ImportError, PackageNotFoundError):
        raise MissingDependency.of("Target 'mlx'", "mlx", "mlx") from None
