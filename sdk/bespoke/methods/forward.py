# SPDX-License-Identifier: Apache-2.0
"""A forward pass in tiles: attention by query tiles, the MLP by slices of its width. What methods and the SDK's own sections share.

Memory is nearly flat in sequence length and width, because each tile's intermediates are gone before the next one's.

A batch may hold n *paths*: n copies of the same rows below each other (`b.batch(copies=n)`), each with an adapter of its own. A
piece of an adapter is then a list of n values. Weights are read, and decoded, once for the rows of all paths in a tile.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.tree import map_leaves
from bespoke.graph.value import Value
from bespoke.ops.int4 import GROUP

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

ATTENTION_LINEARS = ("q_proj", "k_proj", "v_proj")
MLP_LINEARS = ("gate_proj", "up_proj", "down_proj")


def pick(tree: dict[str, Any], *names: str) -> dict[str, Any]:
    """The entries of a weight or adapter tree that belong to these linears or norms."""
    return {name: leaf for name, leaf in tree.items() if name.split(".", 1)[0] in names}


def mlp_projections(weights: dict[str, Any], adapter: dict[str, Any]) -> dict[str, Any]:
    """A of gate, up and down, where they have adapters: among the adapter's pieces, or among the weights if B alone is trained."""
    return {name: leaf for name, leaf in pick({**weights, **adapter}, *MLP_LINEARS).items() if name.endswith("lora_A")}


@dataclass(frozen=True)
class Attention:
    """Values of the attention of one block: q and o [N, H * d], k and v [N, K * d]."""

    q: Value
    k: Value
    v: Value
    o: Value


@dataclass(frozen=True)
class Pass:
    """Results of a block's forward pass: `y` [N, D], and values that a backward pass may use.

    `middle` is the residual after attention, `branch` the MLP's before it is normed again (Gemma 3) and added, `products` gate and
    up by slices of the width, where they were asked for.
    """

    x: Value
    attention: Attention
    middle: Value
    branch: Value
    products: tuple[dict[str, Value], ...]
    y: Value


@dataclass(frozen=True)
class Tile:
    """Rows of some queries and of the keys that they may see, in the flat batch; `start` is the first query's position among
    those keys."""

    rows: tuple[int, int]
    keys: tuple[int, int]
    start: int


def attention_weights(model: ModelSpec, weights: dict[str, Any]) -> dict[str, Any]:
    """The weights of a block that attention_inputs needs."""
    return pick(weights, *ATTENTION_LINEARS, "input_norm", "q_norm", "k_norm")


def output_weights(weights: dict[str, Any]) -> dict[str, Any]:
    """The weights of a block that attention_output needs."""
    return pick(weights, "o_proj", "attention_output_norm")


def after_attention_weights(weights: dict[str, Any]) -> dict[str, Any]:
    """The weights of a block that after_attention needs."""
    return {**output_weights(weights), **pick(weights, "mlp_norm", *MLP_LINEARS, "mlp_output_norm")}


def rope_rows(
    b: StepBuilder, model: ModelSpec, block: int, length: int, position: Value | None = None
) -> dict[str, Value]:
    """The tables of a block for `length` positions, from 0 or from the run-time position: cos, sin [length, d / 2]."""
    tables = b.weights("rope")
    cos, sin = (tables[name] for name in model.rope_names(block))
    if position is None:
        return {"cos": cos.rows(0, length), "sin": sin.rows(0, length)}
    return {"cos": cos.rows_at(position, length), "sin": sin.rows_at(position, length)}


ROWS = 256  # of a tile where memory is short; fewer would decode weights more often than their products are worth


def row_tiles(b: StepBuilder, count: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Rows of `count` in a flat batch, and their positions in a sequence: some sequences at a time, or parts of one."""
    most = b.batch_size * b.sequence_length
    return _tiles(count, b.choose("row_tile", [min(ROWS, most), most]), b.sequence_length)


def _tiles(count: int, size: int, length: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    if size >= count:
        return [((0, count), (0, min(count, length)))]
    if size >= length:
        group = size // length * length
        return [((start, min(start + group, count)), (0, length)) for start in range(0, count, group)]
    return [
        ((first + begin, first + min(begin + size, length)), (begin, min(begin + size, length)))
        for first in range(0, count, length)
        for begin in range(0, length, size)
    ]


def path_tiles(
    b: StepBuilder, count: int, paths: int
) -> list[tuple[tuple[int, int], tuple[int, int], tuple[int, int]]]:
    """Rows and positions of `count` rows of so many paths, and the paths that they are of: some whole ones, or a part of one."""
    if paths == 1:
        return [(*tile, (0, 1)) for tile in row_tiles(b, count)]
    size, each, length = b.choose("path_tile", [min(ROWS, count), count]), count // paths, b.sequence_length
    if size >= each:
        ends = [(first, min(first + size // each, paths)) for first in range(0, paths, size // each)]
        return [((first * each, last * each), (0, length), (first, last)) for first, last in ends]
    return [
        ((path * each + start, path * each + stop), positions, (path, path + 1))
        for path in range(paths)
        for (start, stop), positions in _tiles(each, size, length)
    ]


def path_count(adapter: dict[str, Any]) -> int:
    """The number of paths that an adapter has pieces for."""
    return max((len(piece) for piece in adapter.values() if isinstance(piece, list)), default=1)


def of_paths(tree: Any, paths: tuple[int, int]) -> Any:
    """The parts of an adapter's pieces that belong to these paths."""
    if isinstance(tree, dict):
        return {name: of_paths(leaf, paths) for name, leaf in tree.items()}
    if not isinstance(tree, list):
        return tree
    first, last = paths
    return tree[first:last] if last - first > 1 else tree[first]


KEY_PARTS = 4  # tiles see a multiple of this part of a sequence: what no query sees is left out, at few shapes


def query_tile(b: StepBuilder) -> int:
    """The number of queries in a tile."""
    return b.choose("query_tile", [min(tile, b.sequence_length) for tile in (64, 128, 256, b.sequence_length)])


def query_tiles(b: StepBuilder, length: int, sequences: int, window: int) -> list[Tile]:
    """Tiles of all sequences, in order. Keys past the last query or out of everybody's window are left out."""
    size, part = query_tile(b), -(-length // KEY_PARTS)
    tiles = []
    for first in range(0, sequences * length, length):
        for begin in range(0, length, size):
            end = min(begin + size, length)
            low = max(0, begin - window + 1) // part * part
            high = min(length, -(-end // part) * part)
            tiles.append(Tile((first + begin, first + end), (first + low, first + high), begin - low))
    return tiles


def mlp_slices(b: StepBuilder, model: ModelSpec) -> list[tuple[int, int]]:
    """(start, stop) of slices of the intermediate width; starts are multiples of the quantization group."""
    width = model.config.intermediate_size
    candidates = [min(width, -(-width // (parts * GROUP)) * GROUP) for parts in (16, 8, 4, 2)]
    size = b.choose("mlp_slice", [*candidates, width])
    return [(start, min(start + size, width)) for start in range(0, width, size)]


def attention_forward(b: StepBuilder, model: ModelSpec, block: int, x: Value, adapter: dict[str, Any]) -> Attention:
    """Attention of a whole batch, x [N, D] with N = batch size times sequence length."""
    weights = b.weights(model.blocks[block])
    length, c = b.sequence_length, model.config
    rope = rope_rows(b, model, block, length)
    widths = {"q": c.num_heads * c.head_dim, "k": c.num_kv_heads * c.head_dim, "v": c.num_kv_heads * c.head_dim}
    inputs = {name: b.zeros((x.shape[0], width)) for name, width in widths.items()}
    loras = pick(adapter, *ATTENTION_LINEARS)
    for rows, positions, paths in path_tiles(b, x.shape[0], path_count(adapter)):
        b.call(
            model.attention_inputs,
            x.rows(*rows),
            attention_weights(model, weights),
            of_paths(loras, paths),
            {name: table.rows(*positions) for name, table in rope.items()},
            into={name: value.rows(*rows) for name, value in inputs.items()},
        )
    o = b.zeros(inputs["q"].shape)
    for tile in query_tiles(b, length, x.shape[0] // length, model.window(block)):
        b.call(
            model.attention_tile,
            inputs["q"].rows(*tile.rows),
            inputs["k"].rows(*tile.keys),
            inputs["v"].rows(*tile.keys),
            b.constant(tile.start),
            b.constant(model.window(block)),
            into=o.rows(*tile.rows),
        )
    return Attention(inputs["q"], inputs["k"], inputs["v"], o)


def attention_output(
    b: StepBuilder, model: ModelSpec, block: int, x: Value, o: Value, adapter: dict[str, Any]
) -> Value:
    """x [N, D] after attention."""
    weights = b.weights(model.blocks[block])
    return b.call(model.attention_output, x, o, output_weights(weights), pick(adapter, "o_proj"))


def mlp_forward(
    b: StepBuilder, model: ModelSpec, block: int, x: Value, adapter: dict[str, Any], *, keep: bool = False
) -> tuple[Value, tuple[dict[str, Value], ...]]:
    """The MLP's branch [N, D], before it is normed again (Gemma 3) and added; and gate and up by slices, if they are to `keep`."""
    weights = b.weights(model.blocks[block])
    inputs = b.call(model.mlp_inputs, x, pick(weights, "mlp_norm"), mlp_projections(weights, adapter))
    down = "down_proj" in model.lora.targets
    sums = {"y": b.zeros(x.shape)} | ({"h_down": b.zeros((x.shape[0], model.lora.rank))} if down else {})
    products = []
    tiles = path_tiles(b, x.shape[0], path_count(adapter))
    for (rows, _, paths), (start, stop) in itertools.product(tiles, mlp_slices(b, model)):
        _, kept = b.call(
            model.mlp_slice,
            *[some_rows(inputs.get(name), *rows) for name in ("x2", "h_gate", "h_up")],
            slice_weights(weights, start, stop),
            of_paths(slice_adapter(adapter, start, stop), paths),
            of_paths(some_rows(inputs.get("a_down"), start, stop), paths),
            b.constant(start),
            add_to=({name: value.rows(*rows) for name, value in sums.items()},),
            keep=keep,
        )
        products += [kept] if keep else []
    if not down:
        return sums["y"], tuple(products)
    branch = b.call(model.mlp_branch, sums["y"], sums["h_down"], {"down_proj.lora_B": adapter["down_proj.lora_B"]})
    return branch, tuple(products)


def some_rows(value: Any, start: int, stop: int) -> Any:
    """Rows of a value, or of one for each path; None stays None (a linear without an adapter)."""
    return None if value is None else map_leaves(lambda leaf: leaf.rows(start, stop), value)


def slice_weights(weights: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    """Gate and up cut by rows; down whole, its columns are cut inside the graph."""
    return {
        "gate_proj": weights["gate_proj"].rows(start, stop),
        "up_proj": weights["up_proj"].rows(start, stop),
        "down_proj": weights["down_proj"],
    }


def slice_adapter(adapter: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    """B of gate and up, cut by rows, as far as they have adapters."""
    return {
        name: some_rows(adapter[name], start, stop)
        for name in ("gate_proj.lora_B", "up_proj.lora_B")
        if name in adapter
    }


def block_pass(
    b: StepBuilder, model: ModelSpec, block: int, x: Value, adapter: dict[str, Any], *, products: bool = False
) -> Pass:
    """A block's forward pass with its intermediate values. A value that nothing uses later is freed at once."""
    attention = attention_forward(b, model, block, x, adapter)
    middle = attention_output(b, model, block, x, attention.o, adapter)
    branch, kept = mlp_forward(b, model, block, middle, adapter, keep=products)
    weights = b.weights(model.blocks[block])
    y = b.call(model.mlp_output, middle, branch, pick(weights, "mlp_output_norm"))
    return Pass(x, attention, middle, branch, kept, y)


def block_forward(
    b: StepBuilder, model: ModelSpec, block: int, x: Value, adapter: dict[str, Any]
) -> tuple[Value, Value]:
    """x [N, D] after the block, and the MLP's branch, which Gemma's backward needs.

    A piece of the adapter is a value, or a list with a value for each path.
    """
    passed = block_pass(b, model, block, x, adapter)
    return passed.y, passed.branch


def embed(b: StepBuilder, model: ModelSpec, tokens: Value) -> Value:
    """tokens [B, T] -> [N, D]."""
    return b.call(model.embed, tokens, b.weights("embedding"))
