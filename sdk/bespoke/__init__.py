# SPDX-License-Identifier: Apache-2.0
"""bespoke: fine-tune a language model for its user, on the user's own device.

Names are loaded on first use. `import bespoke` must not import torch, and a process that only trains must not import the
compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bespoke.version import __version__

if TYPE_CHECKING:
    from bespoke.bundle.archive import pack
    from bespoke.bundle.reader import read_bundle
    from bespoke.bundle.signature import generate_key, sign_bundle
    from bespoke.config import Budget, Federation, Lora, Training
    from bespoke.delivery import install
    from bespoke.errors import BespokeError, BuildWarning
    from bespoke.exports.gguf_base import export_base
    from bespoke.federation_client import FederationClient, learn_together
    from bespoke.personal_model import PersonalModel
    from bespoke.personalizer import Personalizer

# Public name -> its module, and after a colon its name there if it differs.
_HOME = {
    "BespokeError": "bespoke.errors",
    "Budget": "bespoke.config",
    "BuildWarning": "bespoke.errors",
    "Federation": "bespoke.config",
    "FederationClient": "bespoke.federation_client",
    "Lora": "bespoke.config",
    "PersonalModel": "bespoke.personal_model",
    "Personalizer": "bespoke.personalizer",
    "Training": "bespoke.config",
    "export_base": "bespoke.exports.gguf_base",
    "generate_key": "bespoke.bundle.signature",
    "install": "bespoke.delivery",
    "learn_together": "bespoke.federation_client",
    "pack": "bespoke.bundle.archive",
    "read_bundle": "bespoke.bundle.reader",
    "sign_bundle": "bespoke.bundle.signature",
}

__all__ = [
    "BespokeError",
    "Budget",
    "BuildWarning",
    "Federation",
    "FederationClient",
    "Lora",
    "PersonalModel",
    "Personalizer",
    "Training",
    "__version__",
    "export_base",
    "generate_key",
    "install",
    "learn_together",
    "pack",
    "read_bundle",
    "sign_bundle",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bespoke' has no attribute '{name}'; it has {', '.join(__all__)}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from bespoke.errors import EXTRAS, MissingDependency

        if error.name not in EXTRAS:
            raise
        raise MissingDependency.of(f"bespoke.{name}", error.name, EXTRAS[error.name]) from None
