# SPDX-License-Identifier: Apache-2.0
"""What an error says is printable and short, whatever it is made of: megabytes, controls of a terminal, half a surrogate pair."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke import errors
from bespoke.errors import MAX_PART_BYTES, BespokeError, ConfigError, printable
from tests.support.checks import few_of, full
from tests.unit.bad_inputs.asking import Lab

MOST_BYTES = 8000  # most bytes of a whole error
SCALE = 30 if full() else 1  # with megabytes a call takes seconds
LONG = "x" * (300_000 * SCALE)
HOSTILE = "a\x1b[2Jb\nc\u202ed\0e\ud800f"

# Calls with a place for a text from outside, which each of them refuses or takes. TEXT is a hostile one, then a long one.
CALLS = [
    "PersonalModel.open(TEXT, state)",
    "PersonalModel.open(bundle, TEXT)",
    "opened(pin_sha256=TEXT)",
    "opened(public_key=TEXT.encode(errors='replace'))",
    "opened(engine=TEXT)",
    "opened(memory_mb=TEXT)",
    "PersonalModel.reset_for_new_base(TEXT, state)",
    "PersonalModel.reset_for_new_base(bundle, TEXT)",
    "model.examples.add({TEXT: 'a'})",
    "model.examples.add({'text': TEXT, 'messages': []})",
    "model.examples.add({'messages': [{'role': TEXT, 'content': 'a'}]})",
    "model.examples.add({'tokens': TEXT})",
    "model.examples.add({'tokens': [TEXT]})",
    "model.examples.add({'text': 'a b c'}, id=TEXT)",
    "model.examples.add({'text': 'a b c'}, use=TEXT)",
    "model.examples.forget(TEXT)",
    "model.train(run_steps=1, method=TEXT)",
    "model.train(run_steps=1, schedule=TEXT)",
    "model.train(run_steps=1, **{TEXT: 1})",
    "model.train(run_steps=TEXT)",
    "model.evaluate(split=TEXT)",
    "model.evaluate([{TEXT: 1}])",
    "model.generate(TEXT, max_tokens=TEXT)",
    "model.generate([{'role': TEXT, 'content': TEXT}])",
    "model.generate([TEXT])",
    "model.generate('a', stop_texts=TEXT)",
    "model.generate('a', stop_texts=[TEXT, ''])",
    "model.conversation().feed([{TEXT: TEXT}])",
    "model.classify('a', TEXT)",
    "model.score('a', [{TEXT: 1}])",
    "model.export_adapter(TEXT, base=True)",
    "model.export_adapter('out', TEXT)",
    "model.export_merged(TEXT, model_folder, base=True)",
    "model.export_merged('out', TEXT, base=True)",
    "model.import_adapter(TEXT)",
    "Personalizer(TEXT).build('out')",
    "Personalizer(model_folder, TEXT)",
    "Personalizer(model_folder, ['mesp', TEXT])",
    "Personalizer(model_folder, {'mesp': {TEXT: 1}})",
    "Personalizer(model_folder, {'mesp': {'update': TEXT}})",
    "Personalizer(model_folder, targets=TEXT)",
    "Personalizer(model_folder, data=TEXT).estimate()",
    "Personalizer(model_folder, data_format=TEXT)",
    "Personalizer(model_folder, encoding=TEXT)",
    "Personalizer(model_folder, fields={TEXT: TEXT})",
    "Personalizer(model_folder, train_on=TEXT)",
    "Personalizer(model_folder, template_date=TEXT)",
    "Personalizer(model_folder, signing_key=TEXT)",
    "Personalizer(model_folder, signing_key=TEXT.encode(errors='replace')).build('out')",
    "Personalizer(model_folder).build(TEXT)",
    "Training(**{TEXT: 1})",
    "Training(schedule=TEXT)",
    "Lora(targets=(TEXT,))",
    "Budget(memory_mb=TEXT)",
    "install(TEXT, 'out')",
    "install('nosuch.zip', TEXT)",
    "install('nosuch.zip', 'out', pin_sha256=TEXT)",
    "pack(TEXT, 'out')",
    "pack(bundle, TEXT)",
    "pack(bundle, 'out', since=TEXT)",
    "read_bundle(TEXT)",
    "export_base(TEXT, 'out')",
    "export_base(bundle, TEXT)",
    "sign_bundle(TEXT, generate_key())",
    "read_task(TEXT, 'a.csv')",
    "read_task('labels', TEXT)",
    "read_task('labels', TEXT + '.csv')",
    "read_task('labels', 'a.csv', fields={TEXT: TEXT})",
    "read_task('labels', 'a.csv', labels=[TEXT, TEXT])",
    "read(read_examples(TEXT))",
    "read(read_examples(TEXT + '.csv'))",
    "read(read_examples('a.csv', TEXT))",
    "read(read_examples('a.csv', encoding=TEXT))",
    "read(read_examples('text.csv', fields={'prompt': '{text} {' + TEXT + '}'}))",
    "command('read', TEXT, '--as', 'whatsapp')",
    "command('read', 'chat.txt', '--as', 'whatsapp', '--me', TEXT)",
    "command('read', 'text.csv', '--as', 'alpaca', '--encoding', TEXT)",
    "check_path(Path(TEXT))",
    "check_path(Path(TEXT + '.svg'))",
    "command('inspect', TEXT)",
    "command('inspect', bundle, '--method', TEXT)",
    "command('examples', 'forget', bundle, TEXT, '--state', state)",
    "command('generate', bundle, TEXT, '--state', state)",
    "command('evaluate', bundle, '--state', state, '--examples', TEXT)",
    "command('train', bundle, '--state', state, '--csv', TEXT)",
    "command('build', 'out', '--config', TEXT)",
    "command('build', 'out', '--model', 'm', '--option', TEXT)",
    "command('build', 'out', '--model', 'm', '--option', 'mesp.x=' + TEXT)",
    "command('build', 'out', '--model', 'm', '--field', TEXT)",
    "Personalizer(model_folder, licence=TEXT)",
    "command(TEXT)",
    "command('inspect', '--' + TEXT)",
    "command('verify', bundle, '--engine', TEXT)",
]

FILES = {
    "header.csv": f"{HOSTILE},b\n1\n".encode(errors="replace"),
    "twice.csv": f"{HOSTILE},{HOSTILE}\n1,2\n".encode(errors="replace"),
    "columns.csv": f"{HOSTILE},{'y' * 100_000},b\n1,2,3\n".encode(errors="replace"),
    "long.csv": b",".join(b"%d" % column * 10 for column in range(7_000 * SCALE)) + b"\n1\n",
    "keys.jsonl": b'{"a\\u001b[2J\\u202e\\ud800": 1}\n',
    "long.jsonl": b'{"%s": 1}\n' % LONG.encode(),
    "many.jsonl": b"{%s}\n" % b",".join(b'"%d": 1' % key for key in range(17_000 * SCALE)),
    "value.jsonl": b'{"text": "a", "label": {"a": "%s"}}\n' % LONG.encode(),
    "no.jsonl": b"\x1b[2J" * (70_000 * SCALE) + b"\n",
    "text.csv": f"text,label\na,{HOSTILE}\nb,c\n".encode(errors="replace"),
    "long.toml": f"{'k' * (100_000 * SCALE)} = 1\n".encode(),
    "escape.toml": b'"\\u001b[2J\\u202e" = 1\nmodel = "m"\n',
    "value.toml": f'model = "{LONG}"\n'.encode(),
    "digits.toml": b"model = 'm'\ncontext = " + b"9" * 10_000 + b"\n",
    "deep.toml": b"model = " + b"[" * 100_000 + b"\n",
    "chat.txt": "".join(f"1/1/24, 9:15 - {LONG[:90_000]}{n}: a\n" for n in range(30)).encode(),
    "lists.json": b'{"%s": [{}], "%s2": [{}]}' % (LONG.encode(), LONG.encode()),
    "from.json": b'{"conversations": [{"from": "%s", "value": "a"}, {"from": "human", "value": "a"}]}' % LONG.encode(),
    "sender.csv": f"sender,text,time{HOSTILE[:3]}\na,b,c\n".encode(errors="replace"),
    "long.json": b"[" + b"{}," * (33_000 * SCALE) + b"3]",
}
READERS = (
    "read(read_examples({file!r}))",
    "read_task('labels', {file!r}, labels=['c'])",
    "read_task('choice', {file!r})",
    "read_task('calls', {file!r}, fields={{'query': 'text', 'call': 'label'}})",
    "command('evaluate', bundle, '--state', state, '--examples', {file!r})",
    "command('build', 'out', '--model', model_folder, '--data', {file!r}, '--dry-run')",
)


@pytest.fixture(scope="module")
def lab(stories_bundle: Path, stories: Path, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("bounded")
    shutil.copytree(state, folder / "state")
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    with Lab(stories_bundle, stories, folder) as lab:
        yield lab


def check(lab: Lab, call: str) -> None:
    answer = lab.ask(call)
    said = answer["said"]
    assert answer["ours"], f"{call[:200]}: {said}"
    assert len(said.encode()) < MOST_BYTES, f"{call[:200]}: {len(said.encode())} bytes"
    assert all(line.isprintable() for line in said.split("\n")), f"{call[:200]}: {said!r}"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("text", ["HOSTILE", "LONG"])
def test_a_text_from_outside_makes_no_long_and_no_unprintable_error(lab: Lab, call: str, text: str) -> None:
    check(lab, call.replace("TEXT", text))


@pytest.mark.parametrize("file", few_of(FILES, [name for name in FILES if name not in ("value.jsonl", "sender.csv")]))
def test_neither_does_what_stands_in_a_file(lab: Lab, file: str) -> None:
    if file.endswith(".toml"):
        check(lab, f"command('build', 'out', '--config', {file!r})")
    else:
        for reader in READERS:
            check(lab, reader.format(file=file))


@pytest.mark.parametrize(
    "kind", [getattr(errors, name) for name in dir(errors) if name[0].isupper() and name != "EXTRAS"][:]
)
def test_every_error_bounds_its_four_parts(kind: type) -> None:
    if not (isinstance(kind, type) and issubclass(kind, BespokeError)):
        pytest.skip("no error")
    for text in (LONG, HOSTILE, HOSTILE * 100_000, "\u00e9\U0001f600" * 100_000):
        error = kind(text, got=text, expected=text, next_step=text)
        for part in (error.subject, error.got, error.expected, error.next_step):
            assert part.isprintable()
            assert len(part.encode()) <= MAX_PART_BYTES
        assert len(str(error).encode()) < MOST_BYTES
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_what_is_short_and_printable_stays_as_it_is_and_a_long_text_loses_its_middle() -> None:
    assert printable("a 'b' \u00e9 \U0001f600") == "a 'b' \u00e9 \U0001f600"
    assert printable(HOSTILE) == "a\\x1b[2Jb\\nc\\u202ed\\x00e\\ud800f"
    text = "".join(f"{number:06d} " for number in range(1000))
    said = printable(text)
    head, _, tail = said.partition(" ... ")
    count, _, tail = tail.partition(" characters left out ... ")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + int(count) + len(tail) == len(text)
    assert min(len(head), len(tail)) > 450
    assert printable(said) == said


def test_many_problems_together_are_bounded_and_keep_their_lines() -> None:
    problems = [
        ConfigError(f"setting {n}\x1b[2J", got=LONG, expected="less", next_step="Shorten it") for n in range(1000)
    ]
    whole = ConfigError.from_problems(problems)
    assert len(str(whole).encode()) < MOST_BYTES
    lines = whole.got.strip("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert lines[-1] == f"  and {1000 - (len(lines) - 1)} more"
    assert str(pickle.loads(pickle.dumps(whole))) == str(whole)
