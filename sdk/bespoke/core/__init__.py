# SPDX-License-Identifier: Apache-2.0
"""The device core as a child process: where the compiled `bespoke-core` is, and how a request to it is run.

The child is the phone's own code, with no Python in it. It runs under a memory limit that the system enforces, tells its steps
as they are made, and dies with its parent. Nothing here imports torch or numpy.
"""

from bespoke.core.child import run
from bespoke.core.finding import Core, find

__all__ = ["Core", "find", "run"]
