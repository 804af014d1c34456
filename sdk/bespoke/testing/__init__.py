# SPDX-License-Identifier: Apache-2.0
"""Contract suites for authors of plugins. Plain functions: call them from a test of any framework."""

from bespoke.testing.optimizer import OptimizerReport, check_optimizer
from bespoke.testing.target import TargetReport, check_target
from bespoke.testing.target_engine import TargetEngine

__all__ = ["OptimizerReport", "TargetEngine", "TargetReport", "check_optimizer", "check_target"]
