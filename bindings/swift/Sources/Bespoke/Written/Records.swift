// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_schemas.py from bindings/schema.

/// What `split` may say. Later versions may say more.
public struct Split: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let train = Split(rawValue: "train")
    public static let validation = Split(rawValue: "validation")
}

/// What `stopped_because` may say. Later versions may say more.
public struct AnswerPieceStoppedBecause: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let stopToken = AnswerPieceStoppedBecause(rawValue: "stop_token")
    public static let stopText = AnswerPieceStoppedBecause(rawValue: "stop_text")
    public static let maxTokens = AnswerPieceStoppedBecause(rawValue: "max_tokens")
    public static let contextFull = AnswerPieceStoppedBecause(rawValue: "context_full")
}

/// What `runtime` may say. Later versions may say more.
public struct Runtime: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let core = Runtime(rawValue: "core")
    public static let torch = Runtime(rawValue: "torch")
    public static let gpu = Runtime(rawValue: "gpu")
    public static let gpuInterpreter = Runtime(rawValue: "gpu_interpreter")
}

/// What `not_measured_because` may say. Later versions may say more.
public struct NotMeasuredBecause: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let notAsked = NotMeasuredBecause(rawValue: "not_asked")
    public static let measuredBefore = NotMeasuredBecause(rawValue: "measured_before")
    public static let noExamples = NotMeasuredBecause(rawValue: "no_examples")
    public static let budgetSpent = NotMeasuredBecause(rawValue: "budget_spent")
    public static let notFinite = NotMeasuredBecause(rawValue: "not_finite")
    public static let anotherAdapter = NotMeasuredBecause(rawValue: "another_adapter")
}

/// What `step` may say. Later versions may say more.
public struct Step: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let ask = Step(rawValue: "ask")
    public static let fetch = Step(rawValue: "fetch")
    public static let takePart = Step(rawValue: "take_part")
    public static let wait = Step(rawValue: "wait")
    public static let done = Step(rawValue: "done")
}

/// What `judged_on` may say. Later versions may say more.
public struct JudgedOn: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let validation = JudgedOn(rawValue: "validation")
    public static let train = JudgedOn(rawValue: "train")
}

/// What `stopped_because` may say. Later versions may say more.
public struct TrainReportStoppedBecause: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let finished = TrainReportStoppedBecause(rawValue: "finished")
    public static let stepsDone = TrainReportStoppedBecause(rawValue: "steps_done")
    public static let stopRequested = TrainReportStoppedBecause(rawValue: "stop_requested")
    public static let exampleForgotten = TrainReportStoppedBecause(rawValue: "example_forgotten")
    public static let diverged = TrainReportStoppedBecause(rawValue: "diverged")
    public static let deadline = TrainReportStoppedBecause(rawValue: "deadline")
    public static let noBetter = TrainReportStoppedBecause(rawValue: "no_better")
}

/// What `refused_because` may say. Later versions may say more.
public struct RefusedBecause: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let diverged = RefusedBecause(rawValue: "diverged")
    public static let nothingToJudgeBy = RefusedBecause(rawValue: "nothing_to_judge_by")
    public static let noBetter = RefusedBecause(rawValue: "no_better")
    public static let luck = RefusedBecause(rawValue: "luck")
    public static let tooSmall = RefusedBecause(rawValue: "too_small")
    public static let generalWorse = RefusedBecause(rawValue: "general_worse")
    public static let withdrawn = RefusedBecause(rawValue: "withdrawn")
    public static let behaviourWorse = RefusedBecause(rawValue: "behaviour_worse")
    public static let answersEndless = RefusedBecause(rawValue: "answers_endless")
    public static let answersEmpty = RefusedBecause(rawValue: "answers_empty")
    public static let answersCopied = RefusedBecause(rawValue: "answers_copied")
}

/// What `trains` may say. Later versions may say more.
public struct Trains: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let both = Trains(rawValue: "both")
    public static let b = Trains(rawValue: "B")
}

/// What `answers_unchecked_because` may say. Later versions may say more.
public struct AnswersUncheckedBecause: RawRepresentable, Codable, Hashable, Sendable {
    public let rawValue: String

    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    public static let noPlan = AnswersUncheckedBecause(rawValue: "no_plan")
    public static let noRoom = AnswersUncheckedBecause(rawValue: "no_room")
    public static let fewAnswers = AnswersUncheckedBecause(rawValue: "few_answers")
}

/// An added example.
///
/// created:                  False if the state already had an example with this id and content
/// truncated_tokens:         tokens that did not fit: rows are at most as long as the bundle's longest sequence. It also counts
///                           tokens that were to be trained on and are only context.
/// truncated_trained_tokens: those of them that were to be trained on, so the example is not learned whole
/// unused_keys:              keys that have no effect, with their counts. A key of a message is named `messages.name`. If there
///                           are more than 32 different ones, the rest is counted together as "...".
public struct AddedExample: Codable, Hashable, Sendable {
    public let id: String
    public let split: Split
    public let created: Bool
    public let truncatedTokens: Int64
    public let truncatedTrainedTokens: Int64
    public let unusedKeys: [String: Int64]

    enum CodingKeys: String, CodingKey {
        case id
        case split
        case created
        case truncatedTokens = "truncated_tokens"
        case truncatedTrainedTokens = "truncated_trained_tokens"
        case unusedKeys = "unused_keys"
    }
}

/// A piece of an answer: a token and the text that it completes.
///
/// text:            whole characters, or nothing. Text that may begin a stop text comes with a later piece.
/// token:           None if the chosen token ends answers
/// tokens:          tokens of the answer so far
/// stopped_because: set in the last piece. The model ended its turn ("stop_token"), a stop text follows ("stop_text"), the answer
///                  has the requested number of tokens ("max_tokens"), or the context is full ("context_full").
public struct AnswerPiece: Codable, Hashable, Sendable {
    public let text: String
    public let token: Int64?
    public let tokens: Int64
    public let stoppedBecause: AnswerPieceStoppedBecause?

    enum CodingKeys: String, CodingKey {
        case text
        case token
        case tokens
        case stoppedBecause = "stopped_because"
    }
}

/// The most likely label, and the natural logarithm of its probability as the whole answer.
public struct Classification: Codable, Hashable, Sendable {
    public let label: String
    public let logProbability: Double?

    enum CodingKeys: String, CodingKey {
        case label
        case logProbability = "log_probability"
    }
}

/// What the open bundle is.
///
/// model:          name of the base model, as it was built
/// licence:        SPDX id or name of the weights' licence
/// context_length: tokens of a conversation, answers included
/// methods:        names of the methods that can train it, the default first
/// targets:        names of the devices that it was compiled for
/// takes_text:     whether it has a tokenizer. Otherwise prompts and examples are token ids.
/// takes_messages: whether it has a chat template
/// answers:        whether it has a plan for answers
/// memory_bytes:   the budget that it was built for; None if it was built without one
public struct Description: Codable, Hashable, Sendable {
    public let model: String
    public let licence: String
    public let contextLength: Int64
    public let methods: [String]
    public let targets: [String]
    public let takesText: Bool
    public let takesMessages: Bool
    public let answers: Bool
    public let memoryBytes: Int64?

    enum CodingKeys: String, CodingKey {
        case model
        case licence
        case contextLength = "context_length"
        case methods
        case targets
        case takesText = "takes_text"
        case takesMessages = "takes_messages"
        case answers
        case memoryBytes = "memory_bytes"
    }
}

/// Means over the unmasked tokens of some examples.
public struct Evaluation: Codable, Hashable, Sendable {
    public let loss: Double?
    public let perplexity: Double?
    public let accuracy: Double?
    public let tokens: Int64
    public let examples: Int64
    public let runtime: Runtime
    public let baseLoss: Double?

    enum CodingKeys: String, CodingKey {
        case loss
        case perplexity
        case accuracy
        case tokens
        case examples
        case runtime
        case baseLoss = "base_loss"
    }
}

/// A stored example. `rows` counts its rows of tokens (windows). `tokens` and `trained_tokens` are sums over them.
public struct ExampleInfo: Codable, Hashable, Sendable {
    public let id: String
    public let split: Split
    public let json: JSONValue
    public let tokens: Int64
    public let trainedTokens: Int64
    public let rows: Int64
    public let addedAt: String

    enum CodingKeys: String, CodingKey {
        case id
        case split
        case json
        case tokens
        case trainedTokens = "trained_tokens"
        case rows
        case addedAt = "added_at"
    }
}

/// What taking part has done.
///
/// round:                the round that the shared adapter has followed now
/// followed:             rounds followed in this call
/// measured:             round whose numbers were made in this call, or None
/// numbers:              how many
/// not_measured_because: why none was made
/// differs:              whether the adapter was not the server's after a round. The next request asks for a snapshot.
/// seconds:              duration of the call
public struct FederationReport: Codable, Hashable, Sendable {
    public let round: Int64
    public let followed: Int64
    public let measured: Int64?
    public let numbers: Int64
    public let notMeasuredBecause: NotMeasuredBecause?
    public let differs: Bool
    public let seconds: Double

    enum CodingKeys: String, CodingKey {
        case round
        case followed
        case measured
        case numbers
        case notMeasuredBecause = "not_measured_because"
        case differs
        case seconds
    }
}

/// What the app does next for the federation.
///
/// step:         "ask": post `body` to the server; "fetch": get `size` bytes of the file `sha256` from `offset` on; "take_part":
///               call that verb; "wait": ask again after `wait_seconds`; "done": the task has ended
/// task:         name of the federation
/// body:         the document to post, JSON (device_document); empty for other steps
/// sha256:       the file to fetch; empty for other steps
/// offset, size: bytes of the file that are wanted
/// wait_seconds: 0 for other steps
public struct FederationRequest: Codable, Hashable, Sendable {
    public let step: Step
    public let task: String
    public let body: String
    public let sha256: String
    public let offset: Int64
    public let size: Int64
    public let waitSeconds: Double

    enum CodingKeys: String, CodingKey {
        case step
        case task
        case body
        case sha256
        case offset
        case size
        case waitSeconds = "wait_seconds"
    }
}

/// What the user takes part in, and what it has cost.
///
/// task:          name of what is learned together; None if the bundle has no federation
/// joined:        whether the user has given consent
/// round:         last round that the shared adapter has followed
/// rounds_sent:   rounds of which numbers were made to be sent
/// pending:       rounds whose numbers no server has confirmed yet
/// spent:         what these rounds have cost (rho of zero-concentrated differential privacy)
/// budget:        most that may be spent; None: no limit, because there is no noise
/// epsilon_spent: epsilon that follows from `spent` at a delta of 1e-5; None without noise, which promises nothing
/// explanation:   what leaves the device, in words for the user
public struct FederationStatus: Codable, Hashable, Sendable {
    public let task: String?
    public let joined: Bool
    public let round: Int64
    public let roundsSent: Int64
    public let pending: Int64
    public let spent: Double
    public let budget: Double?
    public let epsilonSpent: Double?
    public let explanation: String

    enum CodingKeys: String, CodingKey {
        case task
        case joined
        case round
        case roundsSent = "rounds_sent"
        case pending
        case spent
        case budget
        case epsilonSpent = "epsilon_spent"
        case explanation
    }
}

/// What forgetting an example did.
///
/// example:          whether the state had the example
/// accepted_deleted: deleted versions, whose runs had seen it
/// run_stopped:      whether an unfinished run had seen it and was stopped
/// numbers_dropped:  rounds of federated learning whose numbers it had entered and that no server has confirmed: they are dropped
/// rounds:           all rounds that it had entered. What was sent of them cannot be recalled.
public struct Forgotten: Codable, Hashable, Sendable {
    public let example: Bool
    public let acceptedDeleted: Int64
    public let runStopped: Bool
    public let numbersDropped: Int64
    public let rounds: [Int64]

    enum CodingKeys: String, CodingKey {
        case example
        case acceptedDeleted = "accepted_deleted"
        case runStopped = "run_stopped"
        case numbersDropped = "numbers_dropped"
        case rounds
    }
}

/// The memory that training with a method takes, by its plans for one budget.
///
/// memory_bytes: the budget that the plans were compiled for; None if the bundle was built without one
/// peak_bytes:   the largest estimate of the plans: anonymous memory on top of the idle process
/// replayable:   whether a step follows from a few numbers. That holds for methods with forward passes only, which take the least
///               memory.
public struct PlannedTraining: Codable, Hashable, Sendable {
    public let method: String
    public let memoryBytes: Int64?
    public let peakBytes: Int64
    public let replayable: Bool

    enum CodingKeys: String, CodingKey {
        case method
        case memoryBytes = "memory_bytes"
        case peakBytes = "peak_bytes"
        case replayable
    }
}

/// A training run. `step` and `cursor` are those of the last commit, in a slot or in the journal.
public struct Run: Codable, Hashable, Sendable {
    public let id: Int64
    public let method: String
    public let seed: Int64
    public let settings: JSONValue
    public let steps: Int64
    public let startedFrom: Int64?
    public let exampleIds: [String]
    public let step: Int64
    public let cursor: JSONValue
    public let endedBecause: String?
    public let startedAt: String
    public let endedAt: String?

    enum CodingKeys: String, CodingKey {
        case id
        case method
        case seed
        case settings
        case steps
        case startedFrom = "started_from"
        case exampleIds = "example_ids"
        case step
        case cursor
        case endedBecause = "ended_because"
        case startedAt = "started_at"
        case endedAt = "ended_at"
    }
}

/// The natural logarithm of an answer's probability after a prompt. It includes the end of the answer.
public struct Score: Codable, Hashable, Sendable {
    public let logProbability: Double?
    public let tokens: Int64

    enum CodingKeys: String, CodingKey {
        case logProbability = "log_probability"
        case tokens
    }
}

/// A judged step of a run. Its loss is on the held-out examples that choose the best step, not on the gate's.
public struct JudgedStep: Codable, Hashable, Sendable {
    public let step: Int64
    public let loss: Double?

    enum CodingKeys: String, CodingKey {
        case step
        case loss
    }
}

/// Memory of a call of `train`, in bytes.
///
/// `peak_bytes` is anonymous memory: on the core that of the whole process, on torch what training added to the idle
/// process. Mapped and file pages are not part of it. `planned_for_bytes` is the bundle's budget that the plans in
/// use were compiled for. `limit_bytes` is the limit that was set.
public struct MemoryReport: Codable, Hashable, Sendable {
    public let idleBytes: Int64
    public let estimateBytes: Int64
    public let peakBytes: Int64
    public let limitBytes: Int64?
    public let mappedDirtyBytes: Int64
    public let fileBytes: Int64
    public let plannedForBytes: Int64?

    enum CodingKeys: String, CodingKey {
        case idleBytes = "idle_bytes"
        case estimateBytes = "estimate_bytes"
        case peakBytes = "peak_bytes"
        case limitBytes = "limit_bytes"
        case mappedDirtyBytes = "mapped_dirty_bytes"
        case fileBytes = "file_bytes"
        case plannedForBytes = "planned_for_bytes"
    }
}

/// `seconds_by_stage` of ``TrainReport``.
public struct TrainReportSecondsByStage: Codable, Hashable, Sendable {
    public let forward: Double
    public let head: Double
    public let backward: Double
    public let update: Double

    enum CodingKeys: String, CodingKey {
        case forward
        case head
        case backward
        case update
    }
}

/// `memory_columns` of ``TrainReport``.
public struct TrainReportMemoryColumns: Codable, Hashable, Sendable {
    public let anonymous: [Int64]
    public let shmem: [Int64]
    public let swap: [Int64]
    public let file: [Int64]

    enum CodingKeys: String, CodingKey {
        case anonymous
        case shmem
        case swap
        case file
    }
}

/// The report of a call of `train`.
public struct TrainReport: Codable, Hashable, Sendable {
    public let method: String
    public let run: Int64
    public let steps: Int64
    public let totalSteps: Int64
    public let tokens: Int64
    public let losses: [Double?]
    public let rejectedSteps: Int64
    public let validationLossBefore: Double?
    public let validationLoss: Double?
    public let generalLossBefore: Double?
    public let generalLoss: Double?
    public let judgedOn: JudgedOn?
    public let accepted: Bool?
    public let stoppedBecause: TrainReportStoppedBecause
    public let memory: MemoryReport
    public let stepPeakBytes: [Int64]
    public let bytesWritten: Int64
    public let seconds: Double
    public let judgedTokens: Int64
    public let judgedOfTokens: Int64
    public let judgedExamples: Int64
    public let gain: Double?
    public let leastGain: Double?
    public let usefulGain: Double?
    public let refusedBecause: RefusedBecause?
    public let judgements: [JudgedStep]
    public let bestStep: Int64?
    public let runtime: Runtime
    public let runBytesWritten: Int64
    public let bytesRead: Int64
    public let stepSeconds: [Double]
    public let secondsByStage: TrainReportSecondsByStage
    public let longestInstructionSeconds: Double
    public let longestCommitSeconds: Double
    public let memoryColumns: TrainReportMemoryColumns
    public let trains: Trains
    public let behaviourLossBase: Double?
    public let behaviourLoss: Double?
    public let behaviourTokens: Int64
    public let adapterScale: Double?
    public let checkedAnswers: Int64
    public let answerTokens: Double?
    public let baseAnswerTokens: Double?
    public let firstTokensKept: Double?
    public let answersUncheckedBecause: AnswersUncheckedBecause?
    public let peakBytes: Int64

    enum CodingKeys: String, CodingKey {
        case method
        case run
        case steps
        case totalSteps = "total_steps"
        case tokens
        case losses
        case rejectedSteps = "rejected_steps"
        case validationLossBefore = "validation_loss_before"
        case validationLoss = "validation_loss"
        case generalLossBefore = "general_loss_before"
        case generalLoss = "general_loss"
        case judgedOn = "judged_on"
        case accepted
        case stoppedBecause = "stopped_because"
        case memory
        case stepPeakBytes = "step_peak_bytes"
        case bytesWritten = "bytes_written"
        case seconds
        case judgedTokens = "judged_tokens"
        case judgedOfTokens = "judged_of_tokens"
        case judgedExamples = "judged_examples"
        case gain
        case leastGain = "least_gain"
        case usefulGain = "useful_gain"
        case refusedBecause = "refused_because"
        case judgements
        case bestStep = "best_step"
        case runtime
        case runBytesWritten = "run_bytes_written"
        case bytesRead = "bytes_read"
        case stepSeconds = "step_seconds"
        case secondsByStage = "seconds_by_stage"
        case longestInstructionSeconds = "longest_instruction_seconds"
        case longestCommitSeconds = "longest_commit_seconds"
        case memoryColumns = "memory_columns"
        case trains
        case behaviourLossBase = "behaviour_loss_base"
        case behaviourLoss = "behaviour_loss"
        case behaviourTokens = "behaviour_tokens"
        case adapterScale = "adapter_scale"
        case checkedAnswers = "checked_answers"
        case answerTokens = "answer_tokens"
        case baseAnswerTokens = "base_answer_tokens"
        case firstTokensKept = "first_tokens_kept"
        case answersUncheckedBecause = "answers_unchecked_because"
        case peakBytes = "peak_bytes"
    }
}

/// A check that passed: `compared` numbers, texts or files. `worst` is the largest share of its tolerance that a
/// number uses.
public struct PassedCheck: Codable, Hashable, Sendable {
    public let what: String
    public let method: String?
    public let sequenceLength: Int64?
    public let compared: Int64
    public let worst: Double

    enum CodingKeys: String, CodingKey {
        case what
        case method
        case sequenceLength = "sequence_length"
        case compared
        case worst
    }
}

/// The checks that passed.
///
/// golden:        False for a bundle without golden vectors
/// files:         files whose hash was computed; 0 if that was not asked for
/// texts_skipped: golden texts of a bundle of format 1.0, whose tokenizer the core cannot read
public struct VerifyReport: Codable, Hashable, Sendable {
    public let golden: Bool
    public let files: Int64
    public let checks: [PassedCheck]
    public let seconds: Double
    public let textsSkipped: Int64
    public let runtime: Runtime

    enum CodingKeys: String, CodingKey {
        case golden
        case files
        case checks
        case seconds
        case textsSkipped = "texts_skipped"
        case runtime
    }
}

/// An accepted adapter. An imported one has a `source` and no `run_id`.
///
/// `other_text` says that it was trained with another chat template or tokenizer than the bundle has now, so it does
/// not answer. The next run starts from it and is compared with the adapter that answers.
public struct Version: Codable, Hashable, Sendable {
    public let id: Int64
    public let runId: Int64?
    public let step: Int64
    public let metrics: JSONValue
    public let acceptedAt: String
    public let source: String?
    public let otherText: Bool

    enum CodingKeys: String, CodingKey {
        case id
        case runId = "run_id"
        case step
        case metrics
        case acceptedAt = "accepted_at"
        case source
        case otherText = "other_text"
    }
}
