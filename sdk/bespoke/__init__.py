# SPDX-License-Identifier: Apache-2.0
"""bespoke: fine-tune a language model for its user, on the user's own device.

Names are loaded when first asked for: `import bespoke` must not import torch, and a device process that only trains
must not import the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bespoke.version import __version__

if TYPE_CHECKING:
    from bespoke.bundle.archive import pack
    from bespoke.config import Budget, Lora, Training
    from bespoke.delivery import install
    from bespoke.errors import BespokeError
    from bespoke.exports.gguf_base import export_base
    from bespoke.personal_model import PersonalModel
    from bespoke.personalizer import Personalizer

_HOME = {
    "BespokeError": "bespoke.errors",
    "Budget": "bespoke.config",
    "Lora": "bespoke.config",
    "PersonalModel": "bespoke.personal_model",
    "Personalizer": "bespoke.personalizer",
    "Training": "bespoke.config",
    "export_base": "bespoke.exports.gguf_base",
    "install": "bespoke.delivery",
    "pack": "bespoke.bundle.archive",
}

__all__ = [
    "BespokeError",
    "Budget",
    "Lora",
    "PersonalModel",
    "Personalizer",
    "Training",
    "__version__",
    "export_base",
    "install",
    "pack",
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
