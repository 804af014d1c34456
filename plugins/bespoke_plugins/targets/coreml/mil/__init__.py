# SPDX-License-Identifier: Apache-2.0
"""An interpreter of MIL programs in numpy. `CoreML.open` runs artifacts in it where there is no Core ML.

It reads the bytes of a spec itself and computes what the MIL specification says. It refuses what it does not know, because an
ignored attribute gives another program. It says what a file means, not what Apple's runtime makes of it.
"""

from bespoke_plugins.targets.coreml.mil.interpreter import Interpreter
from bespoke_plugins.targets.coreml.mil.spec import Constant, Feature, Operation, Reference, Spec, Type, read_spec

__all__ = ["Constant", "Feature", "Interpreter", "Operation", "Reference", "Spec", "Type", "read_spec"]
