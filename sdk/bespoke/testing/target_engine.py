# SPDX-License-Identifier: Apache-2.0
"""An engine of the core for the artifacts of any target that opens them on this machine.

Whole plans run as on a device and with a device's artifacts. The target's own runtime may be an interpreter."""

from __future__ import annotations

import ctypes as c
import tempfile
from pathlib import Path

from bespoke.config import Settings
from bespoke.contracts import Target
from bespoke.core.engine_table import Artifact
from bespoke.core.torch_engine import TorchEngine, wanted_specs
from bespoke.errors import ConfigError

__all__ = ["TargetEngine"]


class TargetEngine(TorchEngine):
    """Runs artifacts by the target's `open`. Values are in the core's memory. Open a model with its `table`, as with any engine."""

    runs_graphs = False

    def __init__(self, target: Target, options: Settings) -> None:
        self.name = target.name
        self._target, self._options = target, options
        super().__init__()

    def open(self, artifact: Artifact) -> int:
        """Opens an artifact from the bytes whose hash the core compared with the manifest."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "artifact"
            path.write_bytes(c.string_at(artifact.bytes, artifact.size))
            program = self._target.open(path, self._options)
        if program is None:
            raise ConfigError(
                f"target '{self.name}'",
                got="an artifact that does not open on this machine",
                expected="one that does",
                next_step="Run it where the target's runtime is",
            )
        return self._hold(program, *wanted_specs(artifact))
