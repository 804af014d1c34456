// SPDX-License-Identifier: Apache-2.0
internal import CBespoke
import Foundation

/// A bundle and one user's state: it takes the user's words, trains, accepts or refuses what was learned, answers, exports, forgets.
///
/// Methods may be called from any task. Those that compute block a thread of their own and none of the threads on which tasks run; a task
/// that is cancelled ends its call in a committed state. Calls that compute run one at a time for each model: a second one waits as long
/// as ``Options/waitSeconds`` says, then it gets ``BespokeError/Kind/busy``. Verbs of the store run meanwhile.
///
/// A model that nobody holds any more is closed without waiting; its calls have ended then, because they hold it.
public final class PersonalModel: Sendable {
    /// The user's examples.
    public let examples: Examples

    /// The user's part in what the users of the app learn together.
    public let federation: Federation

    private let handle: Handle

    private init(_ handle: Handle) {
        self.handle = handle
        examples = Examples(handle: handle)
        federation = Federation(handle: handle)
    }

    // MARK: - Opening and closing

    /// Opens a bundle and the user's state folder, which is made where there is none. `bundle` is a folder, a folder with weights.zip and
    /// method.zip in it, or a zip.
    public static func open(
        bundle: URL, state: URL, options: Options = Options(), onProgress: (@Sendable (CallProgress) -> Void)? = nil
    ) async throws -> PersonalModel {
        try await blocking(waits: options.waits, onProgress: onProgress) { call in
            try withTexts { texts in
                var place = self.place(of: bundle, texts)
                var given = try options.given(texts)
                return try options.opening { engine in
                    var model: OpaquePointer?
                    given.engine = engine
                    try checked { bespoke_open(&place, texts(path(of: state)), &given, call, &model, $0) }
                    return PersonalModel(Handle(model!, options.waits))
                }
            }
        }
    }

    /// Ends the calls that run, waits for them at most `seconds` (nil: however long it takes) and closes the model with its conversations.
    /// The state can be opened again then. ``BespokeError/Kind/busy``, and it stays open, where a call still runs. Closing again does
    /// nothing.
    public func close(seconds: Double? = nil) async throws {
        do {
            try await stored { [handle] in
                try checked { bespoke_close(handle.model, seconds ?? -1, $0) }
            }
        } catch let error as BespokeError where error.kind == .stateError {
            // It is closed.
        }
    }

    /// Ends the calls that run at their next instruction, in a committed state. Later calls run.
    public func interrupt() throws {
        try checked { bespoke_interrupt(handle.model, $0) }
    }

    /// Makes the bundle `folder` out of its archives, in the place of an older bundle or of nothing.
    public static func install(
        archives: [URL], folder: URL, trust: Trust = Trust(), onProgress: (@Sendable (CallProgress) -> Void)? = nil
    ) async throws {
        try await blocking(waits: Options().waits, onProgress: onProgress) { call in
            try withTexts { texts in
                let paths = archives.map { texts(path(of: $0)) }
                var given = try Options(trust: trust).given(texts)
                try checked { bespoke_install(paths, paths.count, texts(path(of: folder)), &given, call, $0) }
            }
        }
    }

    /// Moves a state to a bundle with another base model: adapters go, examples are kept. No model has the state open.
    public static func resetForNewBase(
        bundle: URL, state: URL, trust: Trust = Trust(), onProgress: (@Sendable (CallProgress) -> Void)? = nil
    ) async throws {
        try await blocking(waits: Options().waits, onProgress: onProgress) { call in
            try withTexts { texts in
                var place = self.place(of: bundle, texts)
                var given = try Options(trust: trust).given(texts)
                try checked { bespoke_reset_for_new_base(&place, texts(path(of: state)), &given, call, $0) }
            }
        }
    }

    private static func place(of bundle: URL, _ texts: Texts) -> bespoke_bundle {
        var place = bespoke_bundle()
        place.struct_size = MemoryLayout<bespoke_bundle>.size
        place.path = texts(path(of: bundle))
        return place
    }

    // MARK: - The open bundle

    /// What the bundle is known by: "pin", "signature" or "none".
    public var authenticated: String { String(cString: bespoke_authenticated(handle.model)) }

    /// What the open bundle is: its model, licence, context, methods and targets.
    public func describe() async throws -> Description {
        try await handle.storedDocument { model, _, text, error in bespoke_describe(model, text, error) }
    }

    /// How many tokens a prompt takes, as a new conversation would read it.
    public func countTokens(_ prompt: Prompt) async throws -> Int64 {
        try await stored { [handle] in
            try withTexts { texts in
                var tokens: Int64 = 0
                try checked { bespoke_count_tokens(handle.model, texts(prompt.json), &tokens, $0) }
                return tokens
            }
        }
    }

    /// Gives the memory back that the model keeps between calls. ``BespokeError/Kind/busy`` while a call computes.
    public func trim() async throws {
        try await stored { [handle] in
            try checked { bespoke_trim(handle.model, $0) }
        }
    }

    /// What a call may add to what the process held when it began, in MB of 10^6 bytes, also one that runs; nil: the bundle's budget.
    public func setLimit(memoryMb: Double?) throws {
        try checked { bespoke_set_limit(handle.model, memoryMb ?? 0, $0) }
    }

    /// The share of its time in which a call computes, more than 0 and at most 1.
    public func setPace(_ share: Double) throws {
        try checked { bespoke_set_pace(handle.model, share, $0) }
    }

    /// Runs the bundle's golden vectors; ``BespokeError/Kind/goldenMismatch`` where one fails.
    public func verify(onProgress: (@Sendable (CallProgress) -> Void)? = nil) async throws -> VerifyReport {
        try await handle.document(onProgress: onProgress) { model, _, call, text, error in bespoke_verify(model, call, text, error) }
    }

    // MARK: - Learning

    /// Adds what the user made of an answer. `answer` is the chat up to and with the answer, the last message; `better` is what it should
    /// have been. A method built with `preferences="simpo"` learns from both, every other from `better` alone.
    public func correct(_ answer: [Example.Message], better: String) async throws -> AddedExample {
        let messages = encoded(answer)
        return try await handle.document { model, texts, call, text, error in
            bespoke_correct(model, texts(messages), texts(better), call, text, error)
        }
    }

    /// Starts a run or goes on with the unfinished one; at its end the gate accepts or refuses.
    ///
    /// Where its task is cancelled, it returns its report too: what was learned until then is committed, and the next call goes on there.
    public func train(_ training: Training = Training(), onProgress: (@Sendable (CallProgress) -> Void)? = nil) async throws -> TrainReport
    {
        try await handle.call(deadline: training.seconds ?? 0, onProgress: onProgress) { model, call in
            try decoded(
                withTexts { texts in
                    var given = training.given(texts)
                    return try text { bespoke_train(model, &given, call, $0, $1) }
                })
        }
    }

    /// Throws what ``train(_:onProgress:)`` would, and does nothing else.
    public func checkTraining(_ training: Training = Training()) async throws {
        try await stored { [handle] in
            try withTexts { texts in
                var given = training.given(texts)
                try checked { bespoke_check_training(handle.model, &given, $0) }
            }
        }
    }

    /// What training takes with each method, by its plans for each budget of the bundle, the largest first.
    public func plannedTraining() async throws -> [PlannedTraining] {
        try await handle.storedDocument { model, _, text, error in bespoke_planned_training(model, text, error) }
    }

    /// The unfinished run.
    public func currentRun() async throws -> Run? {
        try await handle.storedDocument { model, _, text, error in bespoke_current_run(model, text, error) }
    }

    /// Ends the unfinished run; whether there was one.
    @discardableResult
    public func abandonRun() async throws -> Bool {
        try await handle.call { model, call in
            var ended: Int32 = 0
            try checked { bespoke_abandon_run(model, call, &ended, $0) }
            return ended != 0
        }
    }

    /// Loss, perplexity and next-token accuracy of what answers, on the user's examples of a split.
    public func evaluate(split: Split = .validation, onProgress: (@Sendable (CallProgress) -> Void)? = nil) async throws -> Evaluation {
        try await evaluate(split.rawValue, "", onProgress)
    }

    /// Loss, perplexity and next-token accuracy of what answers, on examples of which nothing is kept.
    public func evaluate(examples: [Example], onProgress: (@Sendable (CallProgress) -> Void)? = nil) async throws -> Evaluation {
        try await evaluate("", encoded(examples), onProgress)
    }

    /// Measures what answers on the base model's own answers to other prompts, which the bundle has. ``Evaluation/loss`` is the loss of
    /// what answers, ``Evaluation/baseLoss`` that of the base model. ``BespokeError/Kind/dataError`` for a bundle without such answers.
    public func evaluateBehaviour(onProgress: (@Sendable (CallProgress) -> Void)? = nil) async throws -> Evaluation {
        try await evaluate("behaviour", "", onProgress)
    }

    private func evaluate(_ split: String, _ examples: String, _ onProgress: (@Sendable (CallProgress) -> Void)?) async throws -> Evaluation
    {
        try await handle.document(onProgress: onProgress) { model, texts, call, text, error in
            bespoke_evaluate(model, texts(split), texts(examples), call, text, error)
        }
    }

    // MARK: - Adapters

    /// Accepted adapters, oldest first; the last one answers.
    public func versions() async throws -> [Version] {
        try await handle.storedDocument { model, _, text, error in bespoke_list_versions(model, text, error) }
    }

    /// Back to the adapter accepted before this one; nil: the base model answers.
    @discardableResult
    public func rollback() async throws -> Version? {
        try await handle.document { model, _, call, text, error in bespoke_rollback(model, call, text, error) }
    }

    /// Forgets everything that was learned; examples stay.
    public func reset() async throws {
        try await handle.call { model, call in
            try checked { bespoke_reset(model, call, $0) }
        }
    }

    /// Writes the adapter that answers to a folder, for the original model. `base`: also where nothing was accepted yet.
    public func exportAdapter(to folder: URL, format: AdapterFormat = .peft, base: Bool = false) async throws {
        try await handle.call { model, call in
            try withTexts { texts in
                let (folder, format) = (texts(path(of: folder)), texts(format.rawValue))
                try checked { bespoke_export_adapter(model, folder, format, base ? 1 : 0, call, $0) }
            }
        }
    }

    /// Takes a folder of PEFT or mlx-lm as the adapter that answers, and returns its version. Another alpha, a lower rank and fewer linears
    /// than the bundle's are taken as they are meant. `trustBase`: also one that does not say its base.
    @discardableResult
    public func importAdapter(from folder: URL, trustBase: Bool = false) async throws -> Int64 {
        try await handle.call { model, call in
            try withTexts { texts in
                var version: Int64 = 0
                let folder = texts(path(of: folder))
                try checked { bespoke_import_adapter(model, folder, trustBase ? 1 : 0, call, &version, $0) }
                return version
            }
        }
    }

    // MARK: - Answers

    /// The pieces of one answer, as they are asked for. To go on with it, use a ``conversation(_:)``.
    public func generate(_ prompt: Prompt, _ generation: Generation = Generation()) async throws -> Answer {
        try await conversation(generation).say(prompt)
    }

    /// A conversation: it is fed what is new, and keeps what was said.
    public func conversation(_ generation: Generation = Generation()) async throws -> Conversation {
        try await stored { [handle] in
            try withTexts { texts in
                var given = generation.given(texts)
                var session: OpaquePointer?
                try checked { bespoke_session_open(handle.model, &given, &session, $0) }
                return Conversation(session!, of: handle)
            }
        }
    }

    /// How likely what answers finds each of `answers` to a prompt, as it was trained on both, in their order.
    public func score(_ prompt: Prompt, answers: [String]) async throws -> [Score] {
        let (prompt, answers) = (prompt.json, encoded(answers))
        return try await handle.document { model, texts, call, text, error in
            bespoke_score(model, texts(prompt), texts(answers), call, text, error)
        }
    }

    /// The likeliest of `labels` as an answer to a prompt.
    public func classify(_ prompt: Prompt, labels: [String]) async throws -> Classification {
        let (prompt, labels) = (prompt.json, encoded(labels))
        return try await handle.document { model, texts, call, text, error in
            bespoke_classify(model, texts(prompt), texts(labels), call, text, error)
        }
    }

    // MARK: - The device core

    /// Of the device core.
    public static var version: String { String(cString: bespoke_version()) }

    /// What the kernels use of this processor: "AVX2", "NEON", ...
    public static var instructionSet: String { String(cString: bespoke_instruction_set()) }
}
