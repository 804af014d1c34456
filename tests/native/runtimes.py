# SPDX-License-Identifier: Apache-2.0
"""The core's runtime over a bundle and a state."""

from __future__ import annotations

from pathlib import Path

from bespoke.bundle.reader import open_bundle
from bespoke.core.handle import Place
from bespoke.core.runtime import CoreRuntime


def runtime(bundle: Path, state: Path) -> CoreRuntime:
    with open_bundle(bundle) as opened:
        return CoreRuntime(Place(bundle, state, opened.manifest_sha256), None)
