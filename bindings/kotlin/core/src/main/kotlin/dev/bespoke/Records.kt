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
    UNKNOWN,
}

/** What `trains` may say. */
@Serializable
enum class Trains {
    @SerialName("both") BOTH,
    @SerialName("B") B,
    UNKNOWN,
}

/**
 * `created` is False where the same id with the same content was there already.
 *
 * `truncated_tokens`: how many tokens are in none of its rows, which are at most as long as the bundle's longest
 * sequence, or only as context where they were to be trained on; `truncated_trained_tokens`: how many of them were
 * to be trained on, so that not even what is learned is whole. `unused_keys`: how often the example has a key that
 * says nothing here; one of its messages is named `messages.name`. Of more than 32 different ones, the others are
 * counted together as "...".
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
 * What an answer grew by: a token, and the text that it completes.
 *
 * text:    whole characters, or nothing; what may be the beginning of a stop text comes with a later piece
 * token:   None where one was chosen that ends answers
 * tokens:  of the answer so far
 * stopped_because: of the last piece: the model ended its turn ("stop_token"), a stop text stands behind the text, the answer has
 *          as many tokens as were asked for, or the context has no room for another
 */
@Serializable
data class AnswerPiece(
    @SerialName("text") val text: String,
    @SerialName("token") val token: Long?,
    @SerialName("tokens") val tokens: Long,
    @SerialName("stopped_because") val stoppedBecause: AnswerPieceStoppedBecause? = null,
)

/** The likeliest of some labels, and the natural logarithm of its probability as the whole answer. */
@Serializable
data class Classification(
    @SerialName("label") val label: String,
    @SerialName("log_probability") val logProbability: Double?,
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
)

/** An example as stored. `rows` counts its token rows (windows), `tokens` and `trained_tokens` sum over them. */
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

/** `example`: it was there. `accepted_deleted`: adapters that had seen it. `run_stopped`: an unfinished run had. */
@Serializable
data class Forgotten(
    @SerialName("example") val example: Boolean,
    @SerialName("accepted_deleted") val acceptedDeleted: Long,
    @SerialName("run_stopped") val runStopped: Boolean,
)

/**
 * What training takes with a method by its plans for one budget.
 *
 * memory_bytes: the budget that they were made for; None: the bundle was built without one
 * peak_bytes:   of their estimates: anonymous memory over the idle process
 * replayable:   a step follows from a few numbers, as with methods that run forward passes only, which take the least memory
 */
@Serializable
data class PlannedTraining(
    @SerialName("method") val method: String,
    @SerialName("memory_bytes") val memoryBytes: Long?,
    @SerialName("peak_bytes") val peakBytes: Long,
    @SerialName("replayable") val replayable: Boolean,
)

/** A training run. `step` and `cursor` are those of the last commit, by slot or by journal. */
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

/**
 * How likely an answer to a prompt is: the natural logarithm of its probability, over its tokens and what ends it.
 */
@Serializable
data class Score(
    @SerialName("log_probability") val logProbability: Double?,
    @SerialName("tokens") val tokens: Long,
)

/** A step of a run, and its loss on the held-out examples that choose the best one: others than the gate's. */
@Serializable
data class JudgedStep(
    @SerialName("step") val step: Long,
    @SerialName("loss") val loss: Double?,
)

/**
 * Bytes. `peak_bytes` is what training took in anonymous memory: on the core all of the process, on torch what came
 * on top of the idle process. The others are not in it. `planned_for_bytes`: the budget that the plans it ran by
 * were made for, one of the bundle's; `limit_bytes` what was allowed.
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

/** What a call of `train` did. */
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
    @SerialName("judged_on") val judgedOn: JudgedOn? = null,
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
    @SerialName("refused_because") val refusedBecause: RefusedBecause? = null,
    @SerialName("judgements") val judgements: List<JudgedStep>,
    @SerialName("best_step") val bestStep: Long?,
    @SerialName("runtime") val runtime: Runtime = Runtime.UNKNOWN,
    @SerialName("run_bytes_written") val runBytesWritten: Long,
    @SerialName("bytes_read") val bytesRead: Long,
    @SerialName("step_seconds") val stepSeconds: List<Double>,
    @SerialName("seconds_by_stage") val secondsByStage: TrainReportSecondsByStage,
    @SerialName("memory_columns") val memoryColumns: TrainReportMemoryColumns,
    @SerialName("trains") val trains: Trains = Trains.UNKNOWN,
)

/**
 * An accepted adapter. `run_id` is None and `source` set where it was imported.
 *
 * `other_text`: it was trained with another chat template or tokenizer than the bundle has now, so it does not
 * answer. The next run starts from it and is judged against what answers.
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
