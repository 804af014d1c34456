# SPDX-License-Identifier: Apache-2.0
"""Calls with a place for a path: PATH."""

from __future__ import annotations

# Verbs with a place for the path of a file, or of a folder that is read.
READ = [
    "PersonalModel.open(PATH, state)",
    "PersonalModel.reset_for_new_base(PATH, state)",
    "read_bundle(PATH)",
    "read_bundle([PATH])",
    "install(PATH, 'out')",
    "install([PATH, PATH], 'out')",
    "pack(PATH, 'zips')",
    "pack(bundle, 'zips', since=PATH)",
    "export_base(PATH, 'out')",
    "sign_bundle(PATH, generate_key())",
    "model.import_adapter(PATH)",
    "model.export_merged('out', PATH, base=True)",
    "read(read_examples(PATH + '.jsonl'))",
    "read(read_examples(PATH + '.json'))",
    "read(read_examples(PATH + '.csv'))",
    "read(read_examples(PATH + '.txt'))",
    "read(read_examples(PATH + '.json', 'chatgpt'))",
    "read(read_examples(PATH + '.tsv', encoding='cp1252'))",
    "command('read', PATH, '--as', 'whatsapp', '--me', 'a')",
    "command('read', PATH, '--as', 'telegram', '--me', 'a')",
    "command('read', PATH + '.json', '--as', 'alpaca')",
    "read_task('labels', PATH + '.csv')",
    "prepare(PATH + '.txt', None)",
    "Tokenizer.open(PATH)",
    "Checkpoint.open(PATH)",
    "read_config(Path(PATH))",
    "Personalizer(PATH).estimate()",
    "Personalizer(model_folder, data=PATH + '.csv').build('out')",
    "command('build', 'out', '--config', PATH)",
    "command('build', 'out', '--model', model_folder, '--signing-key', PATH)",
    "command('build', 'out', '--model', model_folder, '--data', PATH + '.jsonl')",
    "command('inspect', PATH)",
    "command('inspect', bundle, '--public-key', PATH)",
    "command('verify', PATH)",
    "command('evaluate', bundle, '--state', state, '--examples', PATH + '.jsonl')",
    "command('evaluate', bundle, '--state', PATH)",
    "command('train', bundle, '--state', state, '--examples', PATH + '.csv')",
]

# With a place for what is written. A folder that is not there, or is empty, may be taken.
WRITTEN = [
    "PersonalModel.open(bundle, PATH).close()",
    "pack(bundle, PATH)",
    "export_base(bundle, PATH)",
    "install('nosuch.zip', PATH)",
    "model.export_adapter(PATH, base=True)",
    "model.export_merged(PATH, model_folder, base=True)",
    "command('build', PATH, '--model', 'nosuch', '--dry-run')",
]
