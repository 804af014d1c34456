# SPDX-License-Identifier: Apache-2.0
"""An interpreter of MIL programs in numpy. `CoreML.open` runs artifacts in it where there is no Core ML.

It parses the bytes of a spec itself and computes what the MIL specification defines. It refuses anything unknown, because an
ignored attribute would change the program. It shows what a file means and not how Apple's runtime executes it.
"""

from bespoke_plugins.targets.coreml.mil.interpreter import Interpreter
from bespoke_plugins.targets.coreml.mil.spec import Constant, Feature, Operation, Reference, Spec, Type, read_spec

__all__ = ["Constant", "Feature", "Interpreter", "Operation", "Reference", "Spec", "Type", "read_spec"]
