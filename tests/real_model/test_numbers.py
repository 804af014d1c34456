# SPDX-License-Identifier: Apache-2.0
"""The device core on a pretrained model, against transformers and peft with the weights that the bundle holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import load_file
from transformers import AutoTokenizer

from bespoke import PersonalModel
from tests.checks import record_check

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real model")]

PROMPTS = (
    "What is the capital of France?", "Name three colours.", "Write two sentences about mountains.", "How do I boil eggs?",
    "Who wrote Hamlet?", "What is photosynthesis?", "Give me a recipe for pancakes.", "Why is the sky blue?", "Tell a joke.",
    "What is 12 times 4?", "Explain gravity to a child.", "What should I pack for the beach?", "Say good morning in French.",
    "List the planets.", "What does a vet do?", "How far is the moon?", "Write a short poem about rain.", "What is a verb?",
    "How can I sleep better?", "What is Python used for?",
)  # fmt: skip
NEW_TOKENS = 100
NEAR_TIE = 1e-3  # of two best logits: which is larger is a matter of rounding
STEPS, RANK, ALPHA, RATE = 20, 8, 16, 2e-4
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Any:
    return AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)


def chat(tokenizer: Any, prompt: str) -> list[int]:
    text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def test_answers_are_those_of_transformers(
    smollm2_bundle: Path, in_transformers: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """Greedy, 100 tokens, up to a tie; and their log-probabilities to 1e-4 a token."""
    cut, furthest, compared = 0, 0.0, 0
    with PersonalModel.open(smollm2_bundle, tmp_path / "state") as model:
        for prompt in PROMPTS:
            ids = chat(tokenizer, prompt)
            answer, logits = greedy(in_transformers, ids)
            session = model.session(max_tokens=NEW_TOKENS)
            with session:
                session.feed(ids)
                found = [piece.token for piece in session if piece.token is not None]
            pairs = enumerate(zip(found, answer, strict=False))
            same = next((place for place, (a, b) in pairs if a != b), min(len(found), len(answer)))
            compared += same
            if same < len(answer):
                best = np.sort(logits[same])[-2:]
                assert best[1] - best[0] < NEAR_TIE, f"{prompt}: token {same} of {len(answer)}"
                cut += 1
            (score,) = model.score(ids, [answer[:same]])
            expected = torch.log_softmax(torch.from_numpy(logits[:same]), -1)
            total = float(expected[torch.arange(same), torch.tensor(answer[:same])].sum())
            furthest = max(furthest, abs(score.log_probability - total) / max(1, score.tokens))
    assert furthest <= 1e-4
    assert cut <= 2
    record_check(
        "SmolLM2's greedy answers, core against transformers",
        {"prompts": len(PROMPTS), "tokens alike": compared, "cut at a tie": cut, "nats a token apart": f"{furthest:.1e}"},
    )  # fmt: skip


def greedy(model: Any, ids: list[int]) -> tuple[list[int], np.ndarray]:
    """Tokens up to an end, and the logits [tokens, V] that each was chosen by."""
    ends, past, chosen, seen = {0, 2}, None, [], []
    step = torch.tensor([ids])
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            out = model(input_ids=step, past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, out.logits[0, -1]
        token = int(logits.argmax())
        if token in ends:
            break
        chosen.append(token)
        seen.append(logits.numpy())
        step = torch.tensor([[token]])
    return chosen, np.array(seen)


def test_twenty_steps_are_those_of_torch_and_peft(
    smollm2_bundle: Path, in_transformers: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """AdamW on one conversation: each loss, and the adapter at the end."""
    question, answer = "Where do I work?", "You work at the harbour library in Bergen."
    losses: list[float] = []
    with PersonalModel.open(smollm2_bundle, tmp_path / "state") as model:
        model.examples.add({"prompt": question, "completion": answer}, use="train")
        model.train(STEPS, on_step=lambda step, loss: losses.append(loss), general_share=0.0)
        exported = load_file(model.export_adapter(tmp_path / "adapter", base=True) / "adapter_model.safetensors")
    prompt = chat(tokenizer, question)
    tokens = prompt + list(tokenizer(answer, add_special_tokens=False).input_ids) + [tokenizer.convert_tokens_to_ids("<|im_end|>")]
    network = get_peft_model(in_transformers, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=LINEARS, lora_dropout=0.0))
    pieces = load_file(smollm2_bundle / "adapter" / "initial.safetensors")
    parameters = {}
    for name, value in network.named_parameters():
        if "lora_" in name:
            value.data = torch.from_numpy(pieces[ours(name)].copy())
            parameters[name.replace(".default", "")] = value.requires_grad_()
    rule = torch.optim.AdamW(parameters.values(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    row = torch.tensor([tokens])
    expected = []
    for _ in range(STEPS):
        logits = network(input_ids=row[:, :-1]).logits[0]
        loss = torch.nn.functional.cross_entropy(logits[len(prompt) - 1 :], row[0, len(prompt) :])
        rule.zero_grad()
        loss.backward()
        rule.step()
        expected.append(float(loss))
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
    distances = {}
    for name, value in parameters.items():
        start = torch.from_numpy(pieces[ours(name)])
        moved = value.detach() - start
        distances[name] = float(torch.linalg.norm(torch.from_numpy(exported[name]) - value.detach()) / torch.linalg.norm(moved))
    assert max(distances.values()) <= 2e-2, max(distances.items(), key=lambda item: item[1])
    record_check(
        "SmolLM2 trained for 20 steps, core against torch and peft",
        {"furthest loss": f"{max(abs(a - b) for a, b in zip(losses, expected, strict=True)):.1e}",
         "furthest piece, of how far it moved": f"{max(distances.values()):.1e}"},
    )  # fmt: skip


def ours(name: str) -> str:
    """The piece's name in a bundle."""
    found = re.search(r"layers\.(\d+)\.\w+\.(\w+)\.lora_([AB])", name)
    assert found, name
    return f"block_{int(found[1]):02d}.{found[2]}.lora_{found[3]}"
