# SPDX-License-Identifier: Apache-2.0
"""Losses and LoRA gradients by other code than the graphs': autograd over `transformers` modules, one block at a time.

The modules come from the model folder's own config.json, so that our translation of it is on trial too; the weights are those of
the bundle, decoded by a second implementation of int4, or the model's own (weights.py). Each visit of a block decodes it once for
all *lanes* (an adapter and a precision each), forward, and then in reverse for those that want gradients; lanes of one precision
are one batch. The head is taken in chunks of the vocabulary, so that neither a dense head nor a [T, V] tensor ever exists.

Dimensions: R rows, n tokens, D hidden, V vocabulary, r rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from bespoke.errors import MissingDependency
from bespoke.golden.weights import Weights
from bespoke.model.spec import ModelSpec
from bespoke.ops.dtypes import Tensors
from bespoke.system.quiet_imports import quiet_imports

CHUNK_BYTES = 32_000_000  # of decoded head at a time, in float64
# Our names of frozen tensors -> the modules of a transformers decoder layer.
_NORMS = {"input_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
_FOUR_NORMS = {
    "input_norm": "input_layernorm",
    "attention_output_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_output_norm": "post_feedforward_layernorm",
}
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")


@dataclass
class Lane:
    """One adapter in one precision. `adapter(block)` gives its pieces, `q_proj.lora_A` and so on, when they are needed."""

    adapter: Callable[[int], Mapping[str, torch.Tensor]]
    dtype: torch.dtype
    gradient: bool
    losses: torch.Tensor = field(default_factory=lambda: torch.empty(0))  # [R, n], of every position, masked or not
    gradients: Tensors = field(default_factory=dict)  # full name -> of the shape of the piece
    _x: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    _inputs: list[torch.Tensor] = field(default_factory=list)
    _dy: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def mean_loss(self) -> float:
        """Set by `Reference.run`: over the unmasked positions."""
        return self._mean

    _mean: float = float("nan")


class KeepFloat64(TorchFunctionMode):
    """transformers computes norms and softmax in fp32 for any input; under this mode float64 stays float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float64:
            if func is torch.Tensor.float or (
                func is torch.Tensor.to and torch.float32 in (*args[1:], kwargs.get("dtype"))
            ):
                return args[0]
            if kwargs.get("dtype") == torch.float32:
                kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


class Reference:
    """The model of a folder with weights of a bundle or of its own; `run` takes lanes through it."""

    def __init__(
        self, folder: Path, model: ModelSpec, weights: Weights, on_visit: Callable[[], None] = lambda: None
    ) -> None:
        try:
            with quiet_imports():
                from transformers import AutoConfig, AutoModel
        except ImportError:
            raise MissingDependency.of("Golden vectors", "transformers", "build") from None
        self.model = model
        self._weights = weights
        self._on_visit = on_visit
        whole = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        config = whole.get_text_config()
        # Of the model shapes and code, which is imported here; weights are lent to it block by block.
        with quiet_imports(), torch.device("meta"):
            self._skeleton = AutoModel.from_config(config, attn_implementation="eager").eval().requires_grad_(False)
        self._config = self._skeleton.config
        self._rotary = type(self._skeleton.rotary_emb)(self._config)
        self._adapter: Tensors = {}
        self._rooms: dict[tuple[str, torch.dtype], torch.Tensor] = {}
        for layer in self._skeleton.layers:
            for name in model.lora.targets:
                part = layer.self_attn if name in _ATTENTION else layer.mlp
                getattr(part, name).register_forward_hook(self._lora(name))
        scale = getattr(self._skeleton.embed_tokens, "scalar_embed_scale", 1.0)
        stored = getattr(config, "dtype", None) or getattr(whole, "dtype", None)
        # Gemma's constant is rounded to the dtype of the stored weights.
        self._embedding_scale = float(torch.tensor(scale).to(stored)) if stored else model.config.embedding_scale

    def run(self, lanes: Sequence[Lane], tokens: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor) -> None:
        """Fills `losses` and `gradients` of each lane: tokens, targets int64 [R, n]; mask [R, n], 1 where a target counts.

        Gradients are of the mean loss over the unmasked positions.
        """
        positions = self._forward(lanes, tokens)
        self._head(lanes, targets, mask)
        backward = [lane for lane in lanes if lane.gradient]
        for block in reversed(range(len(self.model.blocks)) if backward else ()):
            for together, weights in self._visit(block, backward):
                self._backward(block, together, weights, positions[together[0].dtype])

    def hidden(self, lane: Lane, tokens: torch.Tensor) -> torch.Tensor:
        """[R, n, D]: what the head reads at each position of the rows [R, n]."""
        self._forward([lane], tokens)
        norm_w = self._norm_weight(self._weights.small("head")["norm"]).to(lane.dtype)
        with torch.no_grad(), KeepFloat64():
            hidden: torch.Tensor = torch.func.functional_call(self._skeleton.norm, {"weight": norm_w}, (lane._x,))
        return hidden

    def watch_inputs(self, see: Callable[[str, str, torch.Tensor], None]) -> None:
        """Calls `see(group, linear, x)` with what each linear of a block is multiplied with, x [..., in]."""
        for group, layer in zip(self.model.blocks, self._skeleton.layers, strict=True):
            for name in self.model.config.linear_shapes:
                part = layer.self_attn if name in _ATTENTION else layer.mlp
                getattr(part, name).register_forward_pre_hook(_telling(see, group, name))

    def next_logits(self, lane: Lane, tokens: torch.Tensor) -> torch.Tensor:
        """[R, V]: of the token behind each of the rows [R, n]."""
        h = self.hidden(lane, tokens)[:, -1]  # (R, D)
        pieces = []
        with torch.no_grad(), KeepFloat64():
            for rows in self._head_chunks():
                out = self._room("head", (rows.stop - rows.start, self.model.config.hidden_size), lane.dtype)
                self._weights.table(self.model.head_table_group, rows, [out])
                pieces.append(h @ out.t())
        self._on_visit()
        return torch.cat(pieces, 1)

    def _forward(self, lanes: Sequence[Lane], tokens: torch.Tensor) -> dict[torch.dtype, Any]:
        """Leaves in `_x` what the last block gives, and returns masks and tables of the positions."""
        embedded = self._lookup("embedding", tokens)
        for lane in lanes:
            lane._x = embedded.to(lane.dtype) * self._embedding_scale
            lane._inputs = []
        positions = {lane.dtype: self._positions(tokens.shape[1], lane.dtype) for lane in lanes}
        with torch.no_grad():
            for block in range(len(self.model.blocks)):
                for together, weights in self._visit(block, lanes):
                    for lane in together:
                        if lane.gradient:
                            lane._inputs.append(lane._x)
                    x = torch.cat([lane._x for lane in together])
                    y = self._block(block, x, weights, self._stacked(block, together), positions[together[0].dtype])
                    for lane, part in zip(together, y.chunk(len(together)), strict=True):
                        lane._x = part
        return positions

    # ---- a block -------------------------------------------------------------------------------------------------------

    def _visit(self, block: int, lanes: Sequence[Lane]) -> Iterator[tuple[list[Lane], Tensors]]:
        """The lanes of each precision with the decoded block: they go through it together, so that it is read once."""
        decoded = self._decode_block(block, list(dict.fromkeys(lane.dtype for lane in lanes)))
        for dtype, weights in decoded.items():
            yield [lane for lane in lanes if lane.dtype == dtype], weights
        self._on_visit()

    def _stacked(self, block: int, lanes: Sequence[Lane]) -> Tensors:
        """The pieces of the lanes' adapters, [lanes, ...]."""
        adapters = [lane.adapter(block) for lane in lanes]
        return {name: torch.stack([adapter[name].to(lanes[0].dtype) for adapter in adapters]) for name in adapters[0]}

    def _decode_block(self, block: int, dtypes: Sequence[torch.dtype]) -> dict[torch.dtype, Tensors]:
        group = self.model.blocks[block]
        norms = _FOUR_NORMS if self.model.config.output_norms else _NORMS
        decoded: dict[torch.dtype, Tensors] = {dtype: {} for dtype in dtypes}
        for name, shape in self.model.config.linear_shapes.items():
            part = "self_attn" if name in _ATTENTION else "mlp"
            outs = [self._room(name, shape, dtype) for dtype in dtypes]
            self._weights.linear(group, name, outs)
            for dtype, out in zip(dtypes, outs, strict=True):
                decoded[dtype][f"{part}.{name}.weight"] = out
        small: Tensors = {}
        for name, array in self._weights.small(group).items():
            if name.endswith(".bias"):
                small[f"self_attn.{name}"] = torch.from_numpy(np.array(array))
            elif name in _ATTENTION:
                small[f"self_attn.{name}.weight"] = self._norm_weight(array)
            elif name in norms:
                small[f"{norms[name]}.weight"] = self._norm_weight(array)
        for dtype in dtypes:
            decoded[dtype] |= {name: value.to(dtype) for name, value in small.items()}
        return decoded

    def _room(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Memory that every block uses again. Fresh pages for each would cost more than decoding."""
        if (name, dtype) not in self._rooms:
            self._rooms[name, dtype] = torch.empty(shape, dtype=dtype)
        return self._rooms[name, dtype][: shape[0]]

    def _norm_weight(self, array: np.ndarray) -> torch.Tensor:
        """The weight of a norm for its module. Gemma's module adds 1 itself, so 1 is subtracted here, in float64."""
        weight = torch.from_numpy(np.array(array))
        return weight.double() - 1.0 if self.model.config.family.startswith("gemma") else weight

    def _block(self, block: int, x: torch.Tensor, weights: Tensors, adapter: Tensors, positions: Any) -> torch.Tensor:
        """x [lanes * R, n, D] -> the same."""
        kind = self._config.layer_types[block] if getattr(self._config, "layer_types", None) else "full_attention"
        masks, tables = positions
        self._adapter = adapter
        with KeepFloat64():
            out = torch.func.functional_call(
                self._skeleton.layers[block],
                weights,
                (x,),
                {"attention_mask": masks[kind], "position_embeddings": tables[kind], "position_ids": None},
            )
        return out[0] if isinstance(out, tuple) else out

    def _backward(self, block: int, lanes: Sequence[Lane], weights: Tensors, positions: Any) -> None:
        x = torch.cat([lane._inputs.pop() for lane in lanes]).requires_grad_()
        adapter = {name: value.requires_grad_() for name, value in self._stacked(block, lanes).items()}
        y = self._block(block, x, weights, adapter, positions)
        dx, *gradients = torch.autograd.grad(y, [x, *adapter.values()], torch.cat([lane._dy for lane in lanes]))
        group = self.model.blocks[block]
        for number, (lane, dy) in enumerate(zip(lanes, dx.chunk(len(lanes)), strict=True)):
            lane._dy = dy
            lane.gradients |= {
                f"{group}.{name}": gradient[number] for name, gradient in zip(adapter, gradients, strict=True)
            }

    def _lora(self, name: str) -> Callable[..., torch.Tensor]:
        """y + s (x A^T) B^T behind a linear, each lane with its own A and B."""

        def hook(_: Any, operands: tuple[torch.Tensor, ...], y: torch.Tensor) -> torch.Tensor:
            a, b = self._adapter[f"{name}.lora_A"], self._adapter[f"{name}.lora_B"]  # [lanes, r, in], [lanes, out, r]
            x = operands[0].reshape(a.shape[0], -1, a.shape[2])
            return y + (self.model.lora.scale * (x @ a.mT) @ b.mT).view(y.shape)

        return hook

    def _positions(self, length: int, dtype: torch.dtype) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Masks and RoPE tables for each kind of layer, as transformers makes them (the tables in fp32 always)."""
        from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

        kinds = set(getattr(self._config, "layer_types", None) or ["full_attention"])
        ids = torch.arange(length)[None]
        like = torch.empty(1, length, self._config.hidden_size, dtype=dtype)
        makers = {"full_attention": create_causal_mask, "sliding_attention": create_sliding_window_causal_mask}
        masks = {
            kind: makers[kind](
                config=self._config, inputs_embeds=like, attention_mask=None, past_key_values=None, position_ids=ids
            )
            for kind in kinds
        }
        by_kind = hasattr(self._rotary, "layer_types")
        tables = {}
        for kind in kinds:
            pair = self._rotary(like.float(), ids, kind) if by_kind else self._rotary(like.float(), ids)
            tables[kind] = tuple(table.to(dtype) for table in pair)
        return masks, tables

    # ---- embedding and head --------------------------------------------------------------------------------------------

    def _lookup(self, group: str, ids: torch.Tensor) -> torch.Tensor:
        """Rows of the table in fp32: ids of any shape -> [..., D]."""
        rows = ids.numpy().reshape(-1)
        table = torch.empty(len(rows), self.model.config.hidden_size)
        self._weights.table(group, rows, [table])
        return table.view(*ids.shape, -1)

    def _head_chunks(self) -> list[slice]:
        """Ranges of the vocabulary."""
        chunk, size = max(1, CHUNK_BYTES // (8 * self.model.config.hidden_size)), self.model.config.vocab_size
        return [slice(start, min(start + chunk, size)) for start in range(0, size, chunk)]

    def _head(self, lanes: Sequence[Lane], targets: torch.Tensor, mask: torch.Tensor) -> None:
        """Losses, and for lanes with a gradient dloss/dx into `_dy`.

        With l_c the log-sum-exp of chunk c, loss = logsumexp_c(l_c) - z_label: autograd gives dl_c/dh for each chunk as it
        passes, the chain rule weighs it with exp(l_c - logsumexp) when the last one is known.
        """
        norm_w = self._norm_weight(self._weights.small("head")["norm"])
        labels = self._lookup(self.model.head_table_group, targets)
        hidden = self.model.config.hidden_size
        xs, hs = [], []
        for lane in lanes:
            x = lane._x.detach().requires_grad_(lane.gradient)
            with KeepFloat64():
                hs.append(torch.func.functional_call(self._skeleton.norm, {"weight": norm_w.to(lane.dtype)}, (x,)))
            xs.append(x)
        sums: list[list[torch.Tensor]] = [[] for _ in lanes]  # of [R, n]
        shares: list[list[torch.Tensor]] = [[] for _ in lanes]  # of [R, n, D]
        dtypes = list(dict.fromkeys(lane.dtype for lane in lanes))
        for rows in self._head_chunks():
            outs = {dtype: self._room("head", (rows.stop - rows.start, hidden), dtype) for dtype in dtypes}
            self._weights.table(self.model.head_table_group, rows, list(outs.values()))
            for number, lane in enumerate(lanes):
                h = hs[number].detach().requires_grad_(lane.gradient)
                total = torch.logsumexp(h @ outs[lane.dtype].t(), -1)
                sums[number].append(total.detach())
                if lane.gradient:
                    shares[number] += torch.autograd.grad(total.sum(), h)
        self._on_visit()
        weight = mask.double() / mask.sum()
        for number, lane in enumerate(lanes):
            stacked = torch.stack(sums[number])
            whole = torch.logsumexp(stacked, 0)
            label = labels.to(lane.dtype)
            lane.losses = whole - (hs[number].detach() * label).sum(-1)
            lane._mean = float((lane.losses * weight).sum())
            if lane.gradient:
                share = torch.exp(stacked - whole)[..., None]
                dh = (share * torch.stack(shares[number])).sum(0) - label
                (lane._dy,) = torch.autograd.grad(hs[number], xs[number], dh * weight.to(lane.dtype)[..., None])


def _telling(see: Callable[[str, str, torch.Tensor], None], group: str, name: str) -> Callable[..., None]:
    return lambda module, operands: see(group, name, operands[0])


__all__ = ["Lane", "Reference"]
