# SPDX-License-Identifier: Apache-2.0
"""What the torch runtime takes beside what the plan says: measured, one set of constants for all models and methods.

4 MB: bundle, tokenizer and state opened, and what torch's matrix products set up at their first use. 1.5 KB for each value and each
instruction of the plan: its record, tensors over its place, and what Python holds after reading it (Qwen2.5-0.5B: 11,000 of
them). `tests/benchmarks/test_estimate.py` holds the sum against measured runs.
"""

from bespoke.plan.compile import Costs

TORCH_COSTS = Costs(constant_bytes=4_000_000, record_bytes=1_500)
