# SPDX-License-Identifier: Apache-2.0
"""SimPO as TRL computes it: two functions of its trainer. The module itself imports `datasets`, which nothing here needs."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional as F

_NAMES = ("cpo_loss", "get_batch_logps")


def trl_functions() -> dict[str, Any]:
    spec = find_spec("trl")
    assert spec is not None, "trl is installed by `make install`"
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    trainer = ast.parse((folder / "experimental" / "cpo" / "cpo_trainer.py").read_text(encoding="utf-8"))
    found = [node for node in ast.walk(trainer) if isinstance(node, ast.FunctionDef) and node.name in _NAMES]
    assert sorted(node.name for node in found) == sorted(_NAMES)
    for node in found:
        node.decorator_list = []
    space: dict[str, Any] = {"torch": torch, "F": F, "selective_log_softmax": _selective_log_softmax}
    code = ast.Module([ast.ImportFrom("__future__", [ast.alias("annotations")], 0), *found], [])
    exec(compile(ast.fix_missing_locations(code), "trl", "exec"), space)
    return space


def _selective_log_softmax(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """TRL's has a kernel of its own for GPUs."""
    return torch.log_softmax(logits, -1).gather(-1, index[..., None]).squeeze(-1)


def simpo_loss(
    logits: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor, *, beta: float, gamma: float, alpha: float
) -> torch.Tensor:
    """TRL's loss of a batch of pairs, chosen answers first: logits [2P, T, V], targets and mask [2P, T].

    TRL shifts labels itself, so one position is put before them. Its NLL is torch's cross entropy over the chosen answers.
    """
    trl = trl_functions()
    labels = F.pad(targets.masked_fill(mask == 0, -100), (1, 0), value=-100)
    shifted = F.pad(logits, (0, 0, 0, 1))
    logps = trl["get_batch_logps"](shifted, labels, average_log_prob=True)
    trainer = SimpleNamespace(
        alpha=0.0,
        loss_type="simpo",
        simpo_gamma=gamma,
        beta=beta,
        label_smoothing=0.0,
        accelerator=SimpleNamespace(device=logits.device),
    )
    chosen, rejected = logps.chunk(2)
    losses, _, _ = trl["cpo_loss"](trainer, chosen, rejected)
    pairs = len(targets) // 2
    nll = F.cross_entropy(logits[:pairs].flatten(0, 1), labels[:pairs, 1:].flatten(), ignore_index=-100)
    return losses.mean() + alpha * nll
