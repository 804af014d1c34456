# SPDX-License-Identifier: Apache-2.0
"""An interpreter of MIL programs in numpy, for machines without Apple's runtime. It reads the bytes of a spec itself, computes what
the MIL specification says, and refuses what it does not know: an attribute that is ignored gives another program.

It says what a file means, not what Apple's runtime makes of it.
"""

from bespoke.testing.mil.interpreter import Interpreter
from bespoke.testing.mil.spec import Constant, Feature, Operation, Reference, Spec, Type, read_spec

__all__ = ["Constant", "Feature", "Interpreter", "Operation", "Reference", "Spec", "Type", "read_spec"]
