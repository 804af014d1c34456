# SPDX-License-Identifier: Apache-2.0
"""What the server imports of bespoke: rules, plan and bundle, what those need, and no torch. Flower is for its own folder."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
import bespoke_federated
for module in pkgutil.walk_packages(bespoke_federated.__path__, "bespoke_federated."):
    if not module.name.startswith("bespoke_federated.flower"):
        importlib.import_module(module.name)
print("\\n".join(sys.modules))
"""
OURS = ("bespoke.rules", "bespoke.plan", "bespoke.bundle")
THEIRS = {
    "bespoke",
    "bespoke.arguments",
    "bespoke.config",
    "bespoke.errors",
    "bespoke.format",
    "bespoke.model",
    "bespoke.model.architecture",
    "bespoke.remedies",
    "bespoke.verbs",
    "bespoke.version",
}


def test_only_rules_plan_and_bundle_are_imported() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "bespoke_federated.app" in modules
    assert "bespoke_federated.cloud.cloud" in modules
    assert not {name for name in modules if name.split(".")[0] in ("torch", "transformers", "bespoke_plugins", "flwr")}
    of_bespoke = {name for name in modules if name == "bespoke" or name.startswith("bespoke.")}
    others = {name for name in of_bespoke if not name.startswith(OURS) and not name.startswith("bespoke.format.")}
    assert others <= THEIRS
