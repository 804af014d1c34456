# SPDX-License-Identifier: Apache-2.0
"""What a bundle holds to turn text into tokens: tokenizer.bin wherever the model has a tokenizer, nothing with text=False."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.errors import DataError, ModelError
from bespoke.golden.prover import verify_bundle
from bespoke.model.special_tokens import special_token_settings
from tests.support.models import tiny_model
from tests.unit.cli.commands import bespoke
from tests.unit.golden.bundles import byte_level_bpe

pytestmark = pytest.mark.xdist_group("text_files")  # what one of them traced the others do not
SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 4,
}  # quickly planned
TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


def personalizer(model: Path, **arguments: Any) -> Personalizer:
    training = Training(sequence_lengths=(12,), batch_size=1, steps=20)
    return Personalizer(model, "mesp", "torch", lora=Lora(rank=2), training=training, data=None, **arguments)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a byte-level BPE and a chat template."""
    folder = tiny_model("llama", tmp_path_factory.mktemp("text") / "model", **SMALL, vocab_size=300)
    byte_level_bpe().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a tokenizer that the core does not run."""
    folder = tiny_model("llama", tmp_path_factory.mktemp("words") / "model", **SMALL)
    vocabulary = {f"w{number}": number for number in range(131)}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "w0")).save(str(folder / "tokenizer.json"))
    return folder


def test_a_bundle_has_tokenizer_bin_where_the_model_has_a_tokenizer(model: Path, tmp_path: Path) -> None:
    first, second = (personalizer(model).build(tmp_path / name) for name in "ab")
    with read_bundle(first) as bundle:
        text = bundle.manifest.text
        assert (text.tokenizer_bin, text.turns) == ("text/tokenizer.bin", "text/turns.json")
        assert (text.tokenizer, text.tokenizer_config) == (None, None)
        assert {path.name for path in (first / "text").iterdir()} == {"tokenizer.bin", "turns.json"}
        tokenizer = Tokenizer.open(model / "tokenizer.json", special_token_settings(model))
        tokenizer.protect(["<s>", "</s>"])  # the marks of the template's turns
        assert bytes(bundle.read("text/tokenizer.bin")) == write_tokenizer_file(tokenizer)
    assert (first / "manifest.json").read_bytes() == (second / "manifest.json").read_bytes()


def test_tokenizer_json_is_kept_where_tokenizer_bin_would_give_back_another(tmp_path: Path) -> None:
    """Two tokens of one text: the second is spelled with a letter that byte-level BPE does not have."""
    folder = tiny_model("llama", tmp_path / "model", **SMALL, vocab_size=302)
    document = json.loads(byte_level_bpe().to_str())
    document["model"]["vocab"] |= {"№": 300, "âĦĸ": 301}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    made = personalizer(folder).build(tmp_path / "bundle")
    with read_bundle(made) as bundle:
        text = bundle.manifest.text
        assert (text.tokenizer, text.tokenizer_config) == ("text/tokenizer.json", "text/tokenizer_config.json")
        assert json.loads(bundle.read("text/tokenizer.json")) == document
        assert "texts" in {check.what for check in verify_bundle(bundle).checks}


def test_without_a_tokenizer_there_is_none(tmp_path: Path) -> None:
    bundle = personalizer(tiny_model("llama", tmp_path / "model", **SMALL)).build(tmp_path / "bundle")
    assert json.loads((bundle / "manifest.json").read_text())["text"]["tokenizer_bin"] is None


def test_a_tokenizer_that_the_core_does_not_run_is_refused_by_build_and_estimate(words: Path, tmp_path: Path) -> None:
    for refused in (lambda: personalizer(words).build(tmp_path / "out"), personalizer(words).estimate):
        with pytest.raises(ModelError) as caught:
            refused()
        assert caught.value.subject == f"{words / 'tokenizer.json'}: model.type"
        assert (caught.value.got, caught.value.expected) == ("WordLevel", "BPE")
        assert "text=False" in caught.value.next_step
    answer = bespoke("build", tmp_path / "out", "--model", words, "--data", "none", "--sequence-lengths", 12)
    assert answer.code != 0
    assert "--no-text" in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_bundle_for_token_ids_only_has_no_text_and_says_what_to_give_it(
    model: Path, words: Path, tmp_path: Path
) -> None:
    for name, folder in (("a", model), ("b", words)):
        made = personalizer(folder, text=False).build(tmp_path / name)
        manifest = json.loads((made / "manifest.json").read_text())
        assert [manifest["text"][file] for file in ("tokenizer", "tokenizer_config", "tokenizer_bin", "turns")] == [
            None
        ] * 4
        assert not (made / "text").exists()
        with PersonalModel.open(made, state=tmp_path / f"{name}.state") as user:
            with pytest.raises(DataError, match="this bundle takes token ids only") as caught:
                user.examples.add({"text": "Once upon a time"})
            assert '{"tokens": [...], "mask": [...]}' in caught.value.expected
            user.examples.add({"tokens": [3, 5, 8, 13]})
            assert len(user.examples) == 1


def test_no_text_on_the_command_line_and_in_a_file(words: Path, tmp_path: Path) -> None:
    quick = ("--optimizers", "mesp", "--targets", "torch", "--sequence-lengths", 12, "--dry-run")
    flags = ("--model", words, "--data", "none", *quick)
    bespoke("build", tmp_path / "out", *flags, "--no-text").ok()
    settings = tmp_path / "bespoke.toml"
    settings.write_text("text = false\n")
    bespoke("build", tmp_path / "out", *flags, "--config", settings).ok()
