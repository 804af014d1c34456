# SPDX-License-Identifier: Apache-2.0
"""A digest of the programs that ExecuTorch's target compiles."""

from __future__ import annotations

import functools
import hashlib

from bespoke_plugins.targets.executorch import vendor
from bespoke_plugins.targets.executorch.program import compile_graph
from tests.unit.targets.programs import graphs_of

compiled_once = functools.cache(compile_graph)  # methods share graphs


def digest(largest: int | None) -> str:
    """Digest of so many programs of mebp, whose blocks are the largest graphs."""
    vendor.load_executorch()
    graphs = sorted(graphs_of("mebp", "plain"), key=lambda graph: (-len(graph.module.graph.nodes), graph.key))
    return hashlib.sha256(b"".join(compiled_once(graph).data for graph in graphs[:largest])).hexdigest()
