// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_schemas.py from bindings/schema.
package dev.bespoke

import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.JsonObject

/** What `split` may say. */
@Serializable
enum class Split {
    @SerialName("train") TRAIN,
    @SerialName("validation") VALIDATION,
    UNKNOWN,
}

/** What `stopped_because` may say. */
@Serializable
enum class AnswerPieceStoppedBecause {
    @SerialName("stop_token") STOP_TOKEN,
    @SerialName("stop_text") STOP_TEXT,
    @SerialName("max_tokens") MAX_TOKENS,
    @SerialName("context_full") CONTEXT_FULL,
    UNKNOWN,
}

/** What `runtime` may say. */
@Serializable
enum class Runtime {
    @SerialName("core") CORE,
    @SerialName("torch") TORCH,
    @SerialName("gpu") GPU,
    @SerialName("gpu_interpreter") GPU_INTERPRETER,
    UNKNOWN,
}

/** What `not_measured_because` may say. */
@Serializable
enum class NotMeasuredBecause {
    @SerialName("not_asked") NOT_ASKED,
    @SerialName("measured_before") MEASURED_BEFORE,
    @SerialName("no_examples") NO_EXAMPLES,
    @SerialName("budget_spent") BUDGET_SPENT,
    @SerialName("not_finite") NOT_FINITE,
    @SerialName("another_adapter") ANOTHER_ADAPTER,
    UNKNOWN,
}

/** What `step` may say. */
@Serializable
enum class Step {
    @SerialName("ask") ASK,
    @SerialName("fetch") FETCH,
    @SerialName("take_part") TAKE_PART,
    @SerialName("wait") WAIT,
    @SerialName("done") DONE,
    UNKNOWN,
}

/** What `judged_on` may say. */
@Serializable
enum class JudgedOn {
    @SerialName("validation") VALIDATION,
    @SerialName("train") TRAIN,
    UNKNOWN,
}

/** What `stopped_because` may say. */
@Serializable
enum class TrainReportStoppedBecause {
    @SerialName("finished") FINISHED,
    @SerialName("steps_done") STEPS_DONE,
    @SerialName("stop_requested") STOP_REQUESTED,
    @SerialName("example_forgotten") EXAMPLE_FORGOTTEN,
    @SerialName("diverged") DIVERGED,
    @SerialName("deadline") DEADLINE,
    @SerialName("no_better") NO_BETTER,
    UNKNOWN,
}

/** What `refused_because` may say. */
@Serializable
enum class RefusedBecause {
    @SerialName("diverged") DIVERGED,
    @SerialName("nothing_to_judge_by") NOTHING_TO_JUDGE_BY,
    @SerialName("no_better") NO_BETTER,
    @SerialName("luck") LUCK,
    @SerialName("too_small") TOO_SMALL,
    @SerialName("general_worse") GENERAL_WORSE,
    @SerialName("withdrawn") WITHDRAWN,
    @SerialName("behaviour_worse") BEHAVIOUR_WORSE,
    @SerialName("answers_endless") ANSWERS_ENDLESS,
    @SerialName("answers_empty") ANSWERS_EMPTY,
    @SerialName("answers_copied") ANSWERS_COPIED,
    UNKNOWN,
}

/** What `trains` may say. */
@Serializable
enum class Trains {
    @SerialName("both") BOTH,
    @SerialName("B") B,
    UNKNOWN,
}

/** What `answers_unchecked_because` may say. */
@Serializable
enum class AnswersUncheckedBecause {
    @SerialName("no_plan") NO_PLAN,
    @SerialName("no_room") NO_ROOM,
    @SerialName("few_answers") FEW_ANSWERS,
    UNKNOWN,
}

/**
 * An added example.
 *
 * created:                  False if the state already had an example with this id and content
 * truncated_tokens:         tokens that did not fit: rows are at most as long as the bundle's longest sequence. It also counts
 *                           tokens that were to be trained on and are only context.
 * truncated_trained_tokens: those of them that were to be trained on, so the example is not learned whole
 * unused_keys:              keys that have no effect, with their counts. A key of a message is named `messages.name`. If there
 *                           are more than 32 different ones, the rest is counted together as "...".
 */
@Serializable
data class AddedExample(
    @SerialName("id") val id: String,
    @SerialName("split") val split: Split = Split.UNKNOWN,
    @SerialName("created") val created: Boolean,
    @SerialName("truncated_tokens") val truncatedTokens: Long,
    @SerialName("truncated_trained_tokens") val truncatedTrainedTokens: Long,
    @SerialName("unused_keys") val unusedKeys: Map<String, Long>,
)

/**
 * A piece of an answer: a token and the text that it completes.
 *
 * text:            whole characters, or nothing. Text that may begin a stop text comes with a later piece.
 * token:           None if the chosen token ends answers
 * tokens:          tokens of the answer so far
 * stopped_because: set in the last piece. The model ended its turn ("stop_token"), a stop text follows ("stop_text"), the answer
 *                  has the requested number of tokens ("max_tokens"), or the context is full ("context_full").
 */
@Serializable
data class AnswerPiece(
    @SerialName("text") val text: String,
    @SerialName("token") val token: Long?,
    @SerialName("tokens") val tokens: Long,
    @SerialName("stopped_because") val stoppedBecause: AnswerPieceStoppedBecause? = AnswerPieceStoppedBecause.UNKNOWN,
)

/** The most likely label, and the natural logarithm of its probability as the whole answer. */
@Serializable
data class Classification(
    @SerialName("label") val label: String,
    @SerialName("log_probability") val logProbability: Double?,
)

/**
 * What the open bundle is.
 *
 * model:          name of the base model, as it was built
 * licence:        SPDX id or name of the weights' licence
 * context_length: tokens of a conversation, answers included
 * methods:        names of the methods that can train it, the default first
 * targets:        names of the devices that it was compiled for
 * takes_text:     whether it has a tokenizer. Otherwise prompts and examples are token ids.
 * takes_messages: whether it has a chat template
 * answers:        whether it has a plan for answers
 * memory_bytes:   the budget that it was built for; None if it was built without one
 */
@Serializable
data class Description(
    @SerialName("model") val model: String,
    @SerialName("licence") val licence: String,
    @SerialName("context_length") val contextLength: Long,
    @SerialName("methods") val methods: List<String>,
    @SerialName("targets") val targets: List<String>,
    @SerialName("takes_text") val takesText: Boolean,
    @SerialName("takes_messages") val takesMessages: Boolean,
    @SerialName("answers") val answers: Boolean,
    @SerialName("memory_bytes") val memoryBytes: Long?,
)

/** Means over the unmasked tokens of some examples. */
@Serializable
data class Evaluation(
    @SerialName("loss") val loss: Double?,
    @SerialName("perplexity") val perplexity: Double?,
    @SerialName("accuracy") val accuracy: Double?,
    @SerialName("tokens") val tokens: Long,
    @SerialName("examples") val examples: Long,
    @SerialName("runtime") val runtime: Runtime = Runtime.UNKNOWN,
    @SerialName("base_loss") val baseLoss: Double?,
)

/**
 * A stored example. `rows` counts its rows of tokens (windows). `tokens` and `trained_tokens` are sums over them.
 */
@Serializable
data class ExampleInfo(
    @SerialName("id") val id: String,
    @SerialName("split") val split: Split = Split.UNKNOWN,
    @SerialName("json") val json: JsonObject,
    @SerialName("tokens") val tokens: Long,
    @SerialName("trained_tokens") val trainedTokens: Long,
    @SerialName("rows") val rows: Long,
    @SerialName("added_at") val addedAt: String,
)

/**
 * What taking part has done.
 *
 * round:                the round that the shared adapter has followed now
 * followed:             rounds followed in this call
 * measured:             round whose numbers were made in this call, or None
 * numbers:              how many
 * not_measured_because: why none was made
 * differs:              whether the adapter was not the server's after a round. The next request asks for a snapshot.
 * seconds:              duration of the call
 */
@Serializable
data class FederationReport(
    @SerialName("round") val round: Long,
    @SerialName("followed") val followed: Long,
    @SerialName("measured") val measured: Long?,
    @SerialName("numbers") val numbers: Long,
    @SerialName("not_measured_because") val notMeasuredBecause: NotMeasuredBecause? = NotMeasuredBecause.UNKNOWN,
    @SerialName("differs") val differs: Boolean,
    @SerialName("seconds") val seconds: Double,
)

/**
 * What the app does next for the federation.
 *
 * step:         "ask": post `body` to the server; "fetch": get `size` bytes of the file `sha256` from `offset` on; "take_part":
 *               call that verb; "wait": ask again after `wait_seconds`; "done": the task has ended
 * task:         name of the federation
 * body:         the document to post, JSON (device_document); empty for other steps
 * sha256:       the file to fetch; empty for other steps
 * offset, size: bytes of the file that are wanted
 * wait_seconds: 0 for other steps
 */
@Serializable
data class FederationRequest(
    @SerialName("step") val step: Step = Step.UNKNOWN,
    @SerialName("task") val task: String,
    @SerialName("body") val body: String,
    @SerialName("sha256") val sha256: String,
    @SerialName("offset") val offset: Long,
    @SerialName("size") val size: Long,
    @SerialName("wait_seconds") val waitSeconds: Double,
)

/**
 * What the user takes part in, and what it has cost.
 *
 * task:          name of what is learned together; None if the bundle has no federation
 * joined:        whether the user has given consent
 * round:         last round that the shared adapter has followed
 * rounds_sent:   rounds of which numbers were made to be sent
 * pending:       rounds whose numbers no server has confirmed yet
 * spent:         what these rounds have cost (rho of zero-concentrated differential privacy)
 * budget:        most that may be spent; None: no limit, because there is no noise
 * epsilon_spent: epsilon that follows from `spent` at a delta of 1e-5; None without noise, which promises nothing
 * explanation:   what leaves the device, in words for the user
 */
@Serializable
data class FederationStatus(
    @SerialName("task") val task: String?,
    @SerialName("joined") val joined: Boolean,
    @SerialName("round") val round: Long,
    @SerialName("rounds_sent") val roundsSent: Long,
    @SerialName("pending") val pending: Long,
    @SerialName("spent") val spent: Double,
    @SerialName("budget") val budget: Double?,
    @SerialName("epsilon_spent") val epsilonSpent: Double?,
    @SerialName("explanation") val explanation: String,
)

/**
 * What forgetting an example did.
 *
 * example:          whether the state had the example
 * accepted_deleted: deleted versions, whose runs had seen it
 * run_stopped:      whether an unfinished run had seen it and was stopped
 * numbers_dropped:  rounds of federated learning whose numbers it had entered and that no server has confirmed: they are dropped
 * rounds:           all rounds that it had entered. What was sent of them cannot be recalled.
 */
@Serializable
data class Forgotten(
    @SerialName("example") val example: Boolean,
    @SerialName("accepted_deleted") val acceptedDeleted: Long,
    @SerialName("run_stopped") val runStopped: Boolean,
    @SerialName("numbers_dropped") val numbersDropped: Long,
    @SerialName("rounds") val rounds: List<Long>,
)

/**
 * The memory that training with a method takes, by its plans for one budget.
 *
 * memory_bytes: the budget that the plans were compiled for; None if the bundle was built without one
 * peak_bytes:   the largest estimate of the plans: anonymous memory on top of the idle process
 * replayable:   whether a step follows from a few numbers. That holds for methods with forward passes only, which take the least
 *               memory.
 */
@Serializable
data class PlannedTraining(
    @SerialName("method") val method: String,
    @SerialName("memory_bytes") val memoryBytes: Long?,
    @SerialName("peak_bytes") val peakBytes: Long,
    @SerialName("replayable") val replayable: Boolean,
)

/** A training run. `step` and `cursor` are those of the last commit, in a slot or in the journal. */
@Serializable
data class Run(
    @SerialName("id") val id: Long,
    @SerialName("method") val method: String,
    @SerialName("seed") val seed: Long,
    @SerialName("settings") val settings: JsonObject,
    @SerialName("steps") val steps: Long,
    @SerialName("started_from") val startedFrom: Long?,
    @SerialName("example_ids") val exampleIds: List<String>,
    @SerialName("step") val step: Long,
    @SerialName("cursor") val cursor: JsonObject,
    @SerialName("ended_because") val endedBecause: String?,
    @SerialName("started_at") val startedAt: String,
    @SerialName("ended_at") val endedAt: String?,
)

/** The natural logarithm of an answer's probability after a prompt. It includes the end of the answer. */
@Serializable
data class Score(
    @SerialName("log_probability") val logProbability: Double?,
    @SerialName("tokens") val tokens: Long,
)

/** A judged step of a run. Its loss is on the held-out examples that choose the best step, not on the gate's. */
@Serializable
data class JudgedStep(
    @SerialName("step") val step: Long,
    @SerialName("loss") val loss: Double?,
)

/**
 * Memory of a call of `train`, in bytes.
 *
 * `peak_bytes` is anonymous memory: on the core that of the whole process, on torch what training added to the idle
 * process. Mapped and file pages are not part of it. `planned_for_bytes` is the bundle's budget that the plans in
 * use were compiled for. `limit_bytes` is the limit that was set.
 */
@Serializable
data class MemoryReport(
    @SerialName("idle_bytes") val idleBytes: Long,
    @SerialName("estimate_bytes") val estimateBytes: Long,
    @SerialName("peak_bytes") val peakBytes: Long,
    @SerialName("limit_bytes") val limitBytes: Long?,
    @SerialName("mapped_dirty_bytes") val mappedDirtyBytes: Long,
    @SerialName("file_bytes") val fileBytes: Long,
    @SerialName("planned_for_bytes") val plannedForBytes: Long?,
)

/** `seconds_by_stage` of [TrainReport]. */
@Serializable
data class TrainReportSecondsByStage(
    @SerialName("forward") val forward: Double,
    @SerialName("head") val head: Double,
    @SerialName("backward") val backward: Double,
    @SerialName("update") val update: Double,
)

/** `memory_columns` of [TrainReport]. */
@Serializable
data class TrainReportMemoryColumns(
    @SerialName("anonymous") val anonymous: List<Long>,
    @SerialName("shmem") val shmem: List<Long>,
    @SerialName("swap") val swap: List<Long>,
    @SerialName("file") val file: List<Long>,
)

/** The report of a call of `train`. */
@Serializable
data class TrainReport(
    @SerialName("method") val method: String,
    @SerialName("run") val run: Long,
    @SerialName("steps") val steps: Long,
    @SerialName("total_steps") val totalSteps: Long,
    @SerialName("tokens") val tokens: Long,
    @SerialName("losses") val losses: List<Double?>,
    @SerialName("rejected_steps") val rejectedSteps: Long,
    @SerialName("validation_loss_before") val validationLossBefore: Double?,
    @SerialName("validation_loss") val validationLoss: Double?,
    @SerialName("general_loss_before") val generalLossBefore: Double?,
    @SerialName("general_loss") val generalLoss: Double?,
    @SerialName("judged_on") val judgedOn: JudgedOn? = JudgedOn.UNKNOWN,
    @SerialName("accepted") val accepted: Boolean?,
    @SerialName("stopped_because") val stoppedBecause: TrainReportStoppedBecause = TrainReportStoppedBecause.UNKNOWN,
    @SerialName("memory") val memory: MemoryReport,
    @SerialName("step_peak_bytes") val stepPeakBytes: List<Long>,
    @SerialName("bytes_written") val bytesWritten: Long,
    @SerialName("seconds") val seconds: Double,
    @SerialName("judged_tokens") val judgedTokens: Long,
    @SerialName("judged_of_tokens") val judgedOfTokens: Long,
    @SerialName("judged_examples") val judgedExamples: Long,
    @SerialName("gain") val gain: Double?,
    @SerialName("least_gain") val leastGain: Double?,
    @SerialName("useful_gain") val usefulGain: Double?,
    @SerialName("refused_because") val refusedBecause: RefusedBecause? = RefusedBecause.UNKNOWN,
    @SerialName("judgements") val judgements: List<JudgedStep>,
    @SerialName("best_step") val bestStep: Long?,
    @SerialName("runtime") val runtime: Runtime = Runtime.UNKNOWN,
    @SerialName("run_bytes_written") val runBytesWritten: Long,
    @SerialName("bytes_read") val bytesRead: Long,
    @SerialName("step_seconds") val stepSeconds: List<Double>,
    @SerialName("seconds_by_stage") val secondsByStage: TrainReportSecondsByStage,
    @SerialName("longest_instruction_seconds") val longestInstructionSeconds: Double,
    @SerialName("longest_commit_seconds") val longestCommitSeconds: Double,
    @SerialName("memory_columns") val memoryColumns: TrainReportMemoryColumns,
    @SerialName("trains") val trains: Trains = Trains.UNKNOWN,
    @SerialName("behaviour_loss_base") val behaviourLossBase: Double?,
    @SerialName("behaviour_loss") val behaviourLoss: Double?,
    @SerialName("behaviour_tokens") val behaviourTokens: Long,
    @SerialName("adapter_scale") val adapterScale: Double?,
    @SerialName("checked_answers") val checkedAnswers: Long,
    @SerialName("answer_tokens") val answerTokens: Double?,
    @SerialName("base_answer_tokens") val baseAnswerTokens: Double?,
    @SerialName("first_tokens_kept") val firstTokensKept: Double?,
    @SerialName("answers_unchecked_because") val answersUncheckedBecause: AnswersUncheckedBecause? = AnswersUncheckedBecause.UNKNOWN,
    @SerialName("peak_bytes") val peakBytes: Long,
)

/**
 * A check that passed: `compared` numbers, texts or files. `worst` is the largest share of its tolerance that a
 * number uses.
 */
@Serializable
data class PassedCheck(
    @SerialName("what") val what: String,
    @SerialName("method") val method: String?,
    @SerialName("sequence_length") val sequenceLength: Long?,
    @SerialName("compared") val compared: Long,
    @SerialName("worst") val worst: Double,
)

/**
 * The checks that passed.
 *
 * golden:        False for a bundle without golden vectors
 * files:         files whose hash was computed; 0 if that was not asked for
 * texts_skipped: golden texts of a bundle of format 1.0, whose tokenizer the core cannot read
 */
@Serializable
data class VerifyReport(
    @SerialName("golden") val golden: Boolean,
    @SerialName("files") val files: Long,
    @SerialName("checks") val checks: List<PassedCheck>,
    @SerialName("seconds") val seconds: Double,
    @SerialName("texts_skipped") val textsSkipped: Long,
    @SerialName("runtime") val runtime: Runtime = Runtime.UNKNOWN,
)

/**
 * An accepted adapter. An imported one has a `source` and no `run_id`.
 *
 * `other_text` says that it was trained with another chat template or tokenizer than the bundle has now, so it does
 * not answer. The next run starts from it and is compared with the adapter that answers.
 */
@Serializable
data class Version(
    @SerialName("id") val id: Long,
    @SerialName("run_id") val runId: Long?,
    @SerialName("step") val step: Long,
    @SerialName("metrics") val metrics: JsonObject,
    @SerialName("accepted_at") val acceptedAt: String,
    @SerialName("source") val source: String?,
    @SerialName("other_text") val otherText: Boolean,
)
