# SPDX-License-Identifier: Apache-2.0
"""A small whole bundle with every field in use, made of real weights, a real graph and the writer under test."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.bundle.manifest import Manifest
from bespoke.bundle.writer import BundleWriter
from bespoke.format.tensors import write_arrays

PROGRAM = "graphs/scale.json"


def program() -> bytes:
    """A graph of two operators, as a bundle keeps it."""
    import torch

    from bespoke.graph.export import program_bytes

    class Scale(torch.nn.Module):
        def forward(self, x: torch.Tensor, norm: torch.Tensor) -> tuple[torch.Tensor]:
            return (torch.nn.functional.silu(x) * norm,)

    torch.set_num_threads(1)
    return program_bytes(torch.export.export(Scale(), (torch.ones(4, 8), torch.ones(8))))


def smaller(file: str, length: int) -> dict[str, Any]:
    """A plan for half of the budget."""
    sizes = {
        "arena_bytes": 1024,
        "workspace_bytes": 512,
        "engine_bytes": 512,
        "session_bytes": 2048,
        "state_bytes": 4096,
    }
    nothing = dict.fromkeys(("constant_bytes", "step_bytes", "scratch_bytes"), 0)
    estimate = {**sizes, **nothing, "peak_bytes": 4096, "work_flops": 120_000}
    return {"sequence_length": length, "file": file, "estimate": estimate, "choices": {"head_rows": 8}}


def manifest_document() -> dict[str, Any]:
    """A manifest without its files: every list has an entry, every optional field a value."""
    key = hashlib.sha256(b"scale").hexdigest()
    rope = {
        "kind": "llama3",
        "theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_positions": 8192,
    }
    return {
        "format": "bespoke-bundle",
        "format_version": {"major": 1, "minor": 8},
        "created_by": {"name": "bespoke-sdk", "version": "0.1.0"},
        "model": {
            "name": "tests/tiny",
            "architecture": "llama",
            "config": {
                "family": "llama",
                "hidden_size": 8,
                "intermediate_size": 16,
                "num_layers": 1,
                "num_heads": 2,
                "num_kv_heads": 1,
                "head_dim": 4,
                "vocab_size": 32,
                "norm_eps": 1e-5,
                "activation": "silu",
                "qkv_bias": False,
                "qk_norm": False,
                "output_norms": False,
                "tied_head": True,
                "embedding_scale": 1.0,
                "attention_scale": 0.5,
                "rope": rope,
                "rope_local": rope,
                "sliding_window": 16,
                "sliding_layers": [True],
                "max_positions": 64,
                "decoder_path": "model",
            },
            "licence": "Apache-2.0",
            "base_sha256": hashlib.sha256(b"base").hexdigest(),
        },
        "lora": {"rank": 2, "alpha": 4.0, "linears": ["q_proj", "v_proj"], "train": "B"},
        "text": {
            "tokenizer": "text/tokenizer.json",
            "tokenizer_config": "text/tokenizer_config.json",
            "tokenizer_bin": "text/tokenizer.bin",
            "turns": "text/turns.json",
            "train_on": "assistant",
            "bos_id": 1,
            "eos_id": 2,
            "stop_ids": [2],
            "vocab_size": 32,
        },
        "context_length": 64,
        "sequence_lengths": [16],
        "budget": {"memory_bytes": 1_000_000},
        "methods": [
            {
                "name": "mesp",
                "training": {
                    "learning_rate": 2e-4,
                    "steps": 300,
                    "sequence_lengths": [16],
                    "batch_size": 1,
                    "accumulation": 1,
                    "clip_norm": 1.0,
                    "schedule": "constant",
                    "warmup_steps": 0,
                    "seed": 0,
                    "general_share": 0.2,
                    "general_tolerance": 0.05,
                    "useful_gain": 0.002,
                    "commit_seconds": 30.0,
                    "write_mb_per_run": 300.0,
                    "packing": False,
                },
                "options": {"update": "adamw", "keep": 1, "fraction": 0.5, "staged": True, "window": None},
                "scalars": {"epsilon": 1e-3},
                "replayable": False,
                "plans": [
                    {
                        "sequence_length": 16,
                        "file": "plans/mesp_16.json",
                        "estimate": {
                            "arena_bytes": 4096,
                            "workspace_bytes": 1024,
                            "engine_bytes": 512,
                            "constant_bytes": 0,
                            "step_bytes": 0,
                            "session_bytes": 0,
                            "state_bytes": 4096,
                            "scratch_bytes": 0,
                            "peak_bytes": 5632,
                            "work_flops": 100_000,
                        },
                        "choices": {"head_rows": 16},
                    }
                ],
                "smaller_plans": [{"memory_bytes": 500_000, "plans": [smaller("plans/mesp_16-0.5mb.json", 16)]}],
            }
        ],
        "generation": {
            "sequence_length": 32,
            "file": "plans/generation.json",
            "estimate": {
                "arena_bytes": 2048,
                "workspace_bytes": 512,
                "engine_bytes": 512,
                "constant_bytes": 0,
                "step_bytes": 0,
                "session_bytes": 2048,
                "state_bytes": 4096,
                "scratch_bytes": 0,
                "peak_bytes": 5120,
                "work_flops": 10_000,
            },
            "choices": {"head_chunk": 32},
        },
        "smaller_generation": [{"memory_bytes": 500_000, "plan": smaller("plans/generation-0.5mb.json", 16)}],
        "weights": [
            {"group": "embedding", "file": "weights/embedding.safetensors"},
            {"group": "block_00", "file": "weights/block_00.safetensors"},
            {"group": "adapter", "file": "adapter/initial.safetensors"},
        ],
        "adapter": "adapter/initial.safetensors",
        "federation": {
            "task": "words",
            "server_key": "ab" * 32,
            "method": "mesp",
            "seed": 7,
            "clip": 1.0,
            "noise": 1.0,
            "budget": 4.0,
        },
        "data": {
            "train": "data/train.safetensors",
            "valid": "data/valid.safetensors",
            "behaviour": "data/behaviour.safetensors",
        },
        "golden": "golden/golden.safetensors",
        "graphs": [
            {
                "key": key,
                "name": "scale",
                "file": PROGRAM,
                "inputs": [
                    {"name": "x", "shape": [4, 8], "dtype": "float32", "role": "temporary"},
                    {"name": "norm", "shape": [8], "dtype": "float32", "role": "weight"},
                    {"name": "start", "shape": [], "dtype": "int64", "role": "constant"},
                ],
                "outputs": [{"name": "result_0", "shape": [4, 8], "dtype": "float32", "role": "temporary"}],
            }
        ],
        "targets": [
            {
                "name": "cuda",
                "options": {"device": "cpu"},
                "artifacts": [
                    {
                        "graph": key,
                        "operands": ["x"],
                        "file": "graphs/cuda/scale-block_00.json",
                        "workspace_bytes": 256,
                        "engine_bytes": 128,
                        "baked": [
                            {
                                "operand": "norm",
                                "weight": "block_00.input_norm",
                                "rows": [0, 8],
                                "columns": [0, 1],
                                "column_start": 0,
                            }
                        ],
                        "numbers": {"start": 0},
                        "delegates": ["QnnBackend"],
                    },
                    {
                        "graph": key,
                        "operands": ["x", "norm", "start"],
                        "file": "graphs/cuda/scale.json",
                        "workspace_bytes": 256,
                        "engine_bytes": 128,
                        "baked": [],
                        "numbers": {},
                        "delegates": [],
                    },
                ],
                "features": [
                    {"tensor_dtype": "float32", "tensor_shape": [8], "dtype": "int8", "shape": [4, 8], "view": "bytes"},
                    {"tensor_dtype": "int64", "tensor_shape": [], "dtype": "int32", "shape": [1], "view": "value"},
                ],
            }
        ],
        "licences": ["licences/LICENSE.txt"],
        "files": {},
    }


def groups() -> dict[str, dict[str, np.ndarray]]:
    """Safetensors files by name; numbers from one generator."""
    numbers = np.random.default_rng(7)

    def quantized(name: str, out: int) -> dict[str, np.ndarray]:
        return {
            f"{name}.codes": numbers.integers(0, 256, (out, 16), dtype=np.uint8),
            f"{name}.scales": numbers.standard_normal((out, 1)).astype(np.float16),
        }

    def lora(linear: str, out: int) -> dict[str, np.ndarray]:
        return {
            f"block_00.{linear}.lora_A": numbers.standard_normal((2, 8)).astype(np.float32),
            f"block_00.{linear}.lora_B": np.zeros((out, 2), np.float32),
        }

    tokens = {
        "tokens": numbers.integers(0, 32, 40).astype(np.int32),
        "mask": np.ones(40, np.uint8),
        "offsets": np.array([0, 20, 40], np.int64),
    }
    return {
        "weights/embedding.safetensors": quantized("table", 32),
        "weights/block_00.safetensors": {**quantized("q_proj", 8), "input_norm": np.ones(8, np.float32)},
        "adapter/initial.safetensors": {**lora("q_proj", 8), **lora("v_proj", 4)},
        "data/train.safetensors": tokens,
        "data/valid.safetensors": tokens,
        "data/behaviour.safetensors": tokens,
        "golden/golden.safetensors": {"losses": np.array([3.5, 3.4, 3.3], np.float32)},
    }


def replace_manifest(folder: Path, data: bytes) -> None:
    """Other bytes as a bundle's manifest, with a sum that fits."""
    (folder / "manifest.json").write_bytes(data)
    (folder / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


def write_example(folder: Path, document: dict[str, Any] | None = None, graph: bytes | None = None) -> Path:
    """A bundle at `folder`. `graph` saves tracing where torch is not wanted."""
    code = graph if graph is not None else b'{"not": "traced"}\n'
    with BundleWriter(folder) as writer:
        for name, arrays in groups().items():
            write_arrays(writer.path_for(name), arrays)
        writer.add_bytes(PROGRAM, code)
        writer.add_bytes("graphs/cuda/scale.json", code)
        writer.add_bytes("graphs/cuda/scale-block_00.json", code)
        writer.add_bytes("plans/mesp_16.json", b'{"sections": []}\n')
        writer.add_bytes("plans/generation.json", b'{"sections": []}\n')
        writer.add_bytes("plans/mesp_16-0.5mb.json", b'{"sections": []}\n')
        writer.add_bytes("plans/generation-0.5mb.json", b'{"sections": []}\n')
        writer.add_bytes("text/tokenizer.json", b'{"model": {}}\n')
        writer.add_bytes("text/tokenizer_config.json", b"{}\n")
        writer.add_bytes("text/tokenizer.bin", b"bsptok\0\0")
        writer.add_bytes("text/turns.json", b"{}\n")
        writer.add_bytes("licences/LICENSE.txt", b"Apache License\n")
        manifest = Manifest.model_validate_json(json.dumps(document or manifest_document()))
        return writer.finish(manifest)
