# SPDX-License-Identifier: Apache-2.0
"""The device core as a child process: finds the compiled `bespoke-core` and runs requests in it.

The child runs the code of the phone, without Python. The system enforces its memory limit. It reports each step at once, and it
ends with its parent. Nothing here imports torch or numpy.
"""

from bespoke.core.child import run
from bespoke.core.finding import Core, find

__all__ = ["Core", "find", "run"]
