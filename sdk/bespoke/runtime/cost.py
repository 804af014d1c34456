# SPDX-License-Identifier: Apache-2.0
"""What the torch runtime takes beside what the plan says: measured once, one set of constants for all models and methods."""

from bespoke.plan.compile import Costs

TORCH_COSTS = Costs(workspace_factor=1.0, constant_bytes=4_000_000)
