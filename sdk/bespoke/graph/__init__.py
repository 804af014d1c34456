# SPDX-License-Identifier: Apache-2.0
"""Tracing and the builders: from plain torch functions to graphs with a typed signature, and to the data flow of a step."""

from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.trace import Graph, TensorSpec
from bespoke.graph.value import Batch, Value

__all__ = ["Batch", "Graph", "StepBuilder", "TensorSpec", "Value"]
