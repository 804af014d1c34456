# SPDX-License-Identifier: Apache-2.0
"""Target `mlx`: graphs as `.mlxfn` programs for MLX with weights as operands, for Macs and, through mlx-swift, iPhones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from bespoke.contracts import Artifact, Baked, Costs, Graph, Settings, Target, hookimpl


class MlxOptions(Settings):
    """Options of `mlx`. `mlx_version` has one value. It is an option because the manifest must name it."""

    int4: Literal["decode", "fused"] = Field(
        default="decode", description="decode: weights in float32, then a product; fused: MLX's quantized_matmul"
    )
    device: Literal["cpu", "gpu"] = Field(default="cpu", description="that every record of the programs names")
    background: bool = Field(
        default=True,
        description="whether the app trains in the background, where iOS ends a process that uses the graphics card",
    )
    mlx_version: Literal["0.31.1"] = Field(
        default="0.31.1", description="of the files: MLX reads those of its own version only"
    )

    @model_validator(mode="after")
    def _no_graphics_card_in_the_background(self) -> Self:
        if self.device == "gpu" and self.background:
            raise ValueError(
                "device 'cpu' with background true, or 'gpu' with it false: iOS refuses the GPU to the background"
            )
        return self


class Mlx(Target):
    """MLX 0.31.1."""

    name = "mlx"
    Options = MlxOptions
    # The whole process of core and engine, measured on Linux with a tiny model and with two blocks of Qwen2.5-0.5B's dimensions.
    costs = Costs(constant_bytes=6_500_000, record_bytes=100, results_in_place=False)

    def lower(self, graph: Graph, folder: Path, options: MlxOptions, baked: Baked | None = None) -> Artifact:
        from bespoke_plugins.targets.mlx.vendor import load_mlx

        load_mlx()
        from bespoke_plugins.targets.mlx.lowering import exported
        from bespoke_plugins.targets.mlx.memory import engine_bytes
        from bespoke_plugins.targets.mlx.records import write

        program = exported(graph, options.int4)
        path = folder / f"{graph.name}-{graph.key[:16]}.mlxfn"
        path.write_bytes(write(program, options.device))
        return Artifact(path, 0, engine_bytes(program, graph.inputs))

    def open(self, path: Path, options: MlxOptions) -> Callable[..., tuple[Any, ...]] | None:
        from bespoke_plugins.targets.mlx.vendor import load_mlx

        load_mlx()
        from bespoke_plugins.targets.mlx.run import open_program

        return open_program(path)


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(Mlx())
