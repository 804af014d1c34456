# SPDX-License-Identifier: Apache-2.0
"""The core in a process of its own, over a bundle and a state."""

from __future__ import annotations

from pathlib import Path

from bespoke.bundle.reader import read_bundle
from bespoke.core.handle import Place
from bespoke.core.own_process import OwnProcess


def own_process(bundle: Path, state: Path) -> OwnProcess:
    with read_bundle(bundle) as opened:
        return OwnProcess(Place(bundle, state, opened.manifest_sha256), None)
