# SPDX-License-Identifier: Apache-2.0
"""The verbs of the SDK and their names in Python, on the command line, in C, Kotlin and Swift.

This is the table of docs/reference/command_line.md. Errors take the names of verbs from it (bespoke.remedies), and
tools/write_schemas.py writes it for C++, Kotlin and Swift. A test compares it with PersonalModel, the commands, bespoke.h and the
classes of Kotlin and Swift.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CAMEL_SETTINGS", "VERBS", "VERB_OF", "Verb"]


class Verb(NamedTuple):
    """A verb and its names. None: not available there. If there are several names, separated by ", ", use the first."""

    what: str
    python: str | None
    command: str | None
    c: str | None
    kotlin: str | None = None
    swift: str | None = None

    @property
    def full_python(self) -> str:
        """The name with its class, such as "PersonalModel.abandon_run"."""
        return (self.python or self.what).partition(", ")[0]

    @property
    def short_python(self) -> str:
        """The name without its class, such as "abandon_run"."""
        return self.full_python.partition("(")[0].rpartition(".")[2]

    @property
    def key(self) -> str:
        """The name that references in errors use: the short name in Python."""
        return self.short_python


def _bound(what: str, python: str | None, command: str | None, c: str | None, name: str) -> Verb:
    """A verb of one name in Kotlin and Swift."""
    return Verb(what, python, command, c, name, name)


VERBS = (
    Verb("turn an exported chat into examples", None, "bespoke read", None),
    Verb("build a bundle", "Personalizer.build, Personalizer.build_with_report", "bespoke build", None),
    Verb("say what a build and its training will take", "Personalizer.estimate", "bespoke build --dry-run", None),
    Verb("say what each budget buys", "Personalizer.dial", None, None),
    Verb("describe a bundle", "bespoke.read_bundle", "bespoke inspect", None),
    _bound("check files, plans and golden vectors", None, "bespoke verify", "bespoke_verify", "PersonalModel.verify"),
    Verb("make a key pair to sign bundles with", "bespoke.generate_key", None, None),
    Verb("sign a bundle", "bespoke.sign_bundle", "bespoke build --signing-key", None),
    Verb("write archives of a bundle, or a delta to an older one", "bespoke.pack", "bespoke pack", None),
    _bound(
        "install a bundle from its archives, or update an older one",
        "bespoke.install",
        "bespoke install",
        "bespoke_install",
        "PersonalModel.install",
    ),
    _bound("open a bundle and a user's state", "PersonalModel.open", "--state", "bespoke_open", "PersonalModel.open"),
    _bound(
        "say what proved the open bundle",
        "PersonalModel.authenticated",
        "bespoke inspect",
        "bespoke_authenticated",
        "PersonalModel.authenticated",
    ),
    _bound(
        "say what the open bundle is",
        "PersonalModel.describe",
        "bespoke inspect",
        "bespoke_describe",
        "PersonalModel.describe",
    ),
    _bound(
        "count the tokens of a prompt",
        "PersonalModel.count_tokens",
        None,
        "bespoke_count_tokens",
        "PersonalModel.countTokens",
    ),
    _bound("give idle memory back", "PersonalModel.trim", None, "bespoke_trim", "PersonalModel.trim"),
    Verb(
        "close them",
        "PersonalModel.close",
        None,
        "bespoke_close, bespoke_release, bespoke_interrupt",
        "PersonalModel.close",
        "PersonalModel.close, PersonalModel.interrupt",
    ),
    _bound("add an example", "examples.add", "bespoke train --examples FILE", "bespoke_add_example", "examples.add"),
    _bound("add several examples at once", "examples.add_all", None, "bespoke_add_examples", "examples.addAll"),
    _bound("correct an answer", "PersonalModel.correct", None, "bespoke_correct", "PersonalModel.correct"),
    _bound(
        "list the examples",
        "examples.list",
        "bespoke examples list",
        "bespoke_list_examples, bespoke_count_examples",
        "examples.list, examples.count",
    ),
    _bound(
        "forget an example and what was learned from it",
        "examples.forget",
        "bespoke examples forget",
        "bespoke_forget_example",
        "examples.forget",
    ),
    _bound(
        "train, or continue the unfinished run",
        "PersonalModel.train",
        "bespoke train",
        "bespoke_train",
        "PersonalModel.train",
    ),
    Verb(
        "stop in a committed state",
        "train(stop=...)",
        "Ctrl-C, SIGTERM",
        "bespoke_cancel_set, bespoke_cancel_new",
        "Job.cancel",
        "Task.cancel",
    ),
    _bound(
        "change the memory limit, also while it trains",
        "PersonalModel.set_limit",
        None,
        "bespoke_set_limit",
        "PersonalModel.setLimit",
    ),
    _bound(
        "slow it down, also while it trains",
        "PersonalModel.set_pace",
        None,
        "bespoke_set_pace",
        "PersonalModel.setPace",
    ),
    _bound(
        "ask whether settings could train, and do nothing",
        "PersonalModel.check_settings",
        None,
        "bespoke_check_training",
        "PersonalModel.checkTraining",
    ),
    _bound(
        "say what training takes with each plan",
        "PersonalModel.planned_training",
        "bespoke inspect",
        "bespoke_planned_training",
        "PersonalModel.plannedTraining",
    ),
    _bound(
        "say which run is unfinished",
        "PersonalModel.current_run",
        None,
        "bespoke_current_run",
        "PersonalModel.currentRun",
    ),
    _bound("end it", "PersonalModel.abandon_run", "bespoke abandon", "bespoke_abandon_run", "PersonalModel.abandonRun"),
    _bound(
        "loss, perplexity and accuracy of what answers",
        "PersonalModel.evaluate",
        "bespoke evaluate",
        "bespoke_evaluate",
        "PersonalModel.evaluate",
    ),
    _bound(
        "loss on the base's own answers, with answers before and after",
        "PersonalModel.evaluate_behaviour",
        "bespoke evaluate --behaviour",
        "bespoke_evaluate",
        "PersonalModel.evaluateBehaviour",
    ),
    Verb("scores on labels, questions, function calls", "PersonalModel.evaluate", "bespoke evaluate --task", None),
    _bound("answer a prompt", "PersonalModel.generate", "bespoke generate", None, "PersonalModel.generate"),
    Verb("answer token ids with token ids", "PersonalModel.generate_ids", None, None),
    _bound(
        "begin a conversation",
        "PersonalModel.conversation",
        "bespoke chat",
        "bespoke_session_open",
        "PersonalModel.conversation",
    ),
    _bound("continue it", "conversation.feed", None, "bespoke_session_feed", "conversation.say"),
    _bound(
        "take the answer, token by token",
        "conversation.__next__",
        None,
        "bespoke_session_next",
        "conversation.next",
    ),
    _bound("end it", "conversation.close", None, "bespoke_session_close", "conversation.close"),
    _bound("say how likely given answers are", "PersonalModel.score", None, "bespoke_score", "PersonalModel.score"),
    _bound(
        "say which of some labels fits",
        "PersonalModel.classify",
        None,
        "bespoke_classify",
        "PersonalModel.classify",
    ),
    _bound(
        "list the accepted adapters",
        "PersonalModel.versions",
        "bespoke versions",
        "bespoke_list_versions",
        "PersonalModel.versions",
    ),
    _bound(
        "return to the adapter before",
        "PersonalModel.rollback",
        "bespoke rollback",
        "bespoke_rollback",
        "PersonalModel.rollback",
    ),
    _bound(
        "delete all that was learned",
        "PersonalModel.reset",
        "bespoke reset",
        "bespoke_reset",
        "PersonalModel.reset",
    ),
    _bound(
        "join what users learn together",
        "federation.join",
        "bespoke federate join",
        "bespoke_federation_join",
        "federation.join",
    ),
    _bound(
        "take the consent back",
        "federation.leave",
        "bespoke federate leave",
        "bespoke_federation_leave",
        "federation.leave",
    ),
    _bound(
        "say what it has cost",
        "federation.status",
        "bespoke federate status",
        "bespoke_federation_status",
        "federation.status",
    ),
    _bound(
        "say what to do next",
        "federation.request",
        "bespoke federate run",
        "bespoke_federation_request",
        "federation.request",
    ),
    _bound(
        "take what came",
        "federation.respond",
        "bespoke federate run",
        "bespoke_federation_respond",
        "federation.respond",
    ),
    _bound(
        "follow rounds, and measure",
        "federation.take_part",
        "bespoke federate run",
        "bespoke_federation_take_part",
        "federation.takePart",
    ),
    Verb(
        "do this with a server over HTTPS",
        "bespoke.learn_together",
        "bespoke federate run",
        None,
        "learnTogether",
        "PersonalModel.learnTogether",
    ),
    Verb("make guidance for rounds of public examples", None, "bespoke federate guide", None),
    _bound(
        "let the shared adapter answer",
        "federation.adopt",
        "bespoke federate adopt",
        "bespoke_federation_adopt",
        "federation.adopt",
    ),
    _bound(
        "move a state to another base model",
        "PersonalModel.reset_for_new_base",
        None,
        "bespoke_reset_for_new_base",
        "PersonalModel.resetForNewBase",
    ),
    _bound(
        "write the adapter to a folder",
        "PersonalModel.export_adapter",
        "bespoke export",
        "bespoke_export_adapter",
        "PersonalModel.exportAdapter",
    ),
    Verb(
        "write the model with the adapter merged into it",
        "PersonalModel.export_merged",
        "bespoke export --format merged",
        None,
    ),
    Verb(
        "write the base model for llama.cpp, for use with a GGUF adapter",
        "bespoke.export_base",
        "bespoke export-base",
        None,
    ),
    _bound(
        "take an adapter from a folder",
        "PersonalModel.import_adapter",
        None,
        "bespoke_import_adapter",
        "PersonalModel.importAdapter",
    ),
    Verb("do all this on a page in the browser", None, "bespoke ui", None),
    _bound(
        "say what is installed, what is missing",
        None,
        "bespoke doctor, bespoke plugins",
        "bespoke_instruction_set",
        "PersonalModel.instructionSet",
    ),
    Verb("measure what this device can do", None, "bespoke bench", None),
    Verb("take the lines that it writes for developers", None, None, "bespoke_set_log"),
    _bound(
        "say the version",
        "bespoke.__version__",
        "bespoke --version",
        "bespoke_version, bespoke_api_version",
        "PersonalModel.version",
    ),
)

# Key -> verb. If two verbs have the same name in Python, it is that of the first.
VERB_OF = {verb.key: verb for verb in reversed(VERBS) if verb.python}


# Settings with another name in Kotlin and Swift. In C each has its name in Python, as a field or an argument.
CAMEL_SETTINGS = {
    "busy_seconds": "busySeconds",
    "max_tokens": "maxTokens",
    "memory_mb": "memoryMb",
    "most_steps": "mostSteps",
    "pin_sha256": "pinSha256",
    "public_key": "publicKey",
    "run_steps": "runSteps",
    "stop_texts": "stopTexts",
    "top_k": "topK",
    "top_p": "topP",
    "train": "settings",
    "trust_base": "trustBase",
    "wait_seconds": "waitSeconds",
}
