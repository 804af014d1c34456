# SPDX-License-Identifier: Apache-2.0
"""What the torch runtime takes beside what the plan says: measured once, one set of constants for all models and methods.

9 MB: what torch's matrix products set up at their first use (about 5 MB), views, and memory that Python holds after it has read
the plans and graphs (1 MB for stories260K, 9 MB for Qwen2.5-0.5B).
"""

from bespoke.plan.compile import Costs

TORCH_COSTS = Costs(workspace_factor=1.0, constant_bytes=9_000_000)
