// SPDX-License-Identifier: Apache-2.0
import Bespoke

public struct ModelAnswer: Equatable, Sendable {
    /// As far as it has come; nil: it has not begun.
    public var text: String?
    public var isWhole = false

    public init() {}
}

/// The same question answered twice.
public struct Answers: Equatable, Sendable {
    /// By the model as the app came.
    public var before = ModelAnswer()

    /// With what was learned.
    public var after = ModelAnswer()

    /// Nil: not known yet.
    public var learned: Bool?

    public init() {}
}

public final class Assistant: Sendable {
    /// Takes the likeliest words: what differs is what was learned, and not chance.
    private static let generation = Generation(maxTokens: 80)

    private let notebook: JSONFile<Notebook>
    private let models: Models
    private let prompt: @Sendable (String) -> Prompt

    init(notebook: JSONFile<Notebook>, models: Models, prompt: @escaping @Sendable (String) -> Prompt) {
        self.notebook = notebook
        self.models = models
        self.prompt = prompt
    }

    /// Tells the answers as they grow. One after the other: two models that compute at once would need twice the memory, and neither would
    /// be done sooner.
    public func ask(_ question: String, tell: @escaping @MainActor @Sendable (Answers) -> Void) async throws {
        var answers = try await models.untaught { [self] model in
            try await answered(by: model, question, \.before, of: Answers(), tell)
        }
        guard try notebook.read().hasTaught else {
            (answers.after, answers.learned) = (answers.before, false)
            return await tell(answers)
        }
        _ = try await models.users { [self, answers] model in
            var answers = answers
            answers.learned = try await !model.versions().isEmpty
            return try await answered(by: model, question, \.after, of: answers, tell)
        }
    }

    private func answered(
        by model: PersonalModel, _ question: String, _ part: WritableKeyPath<Answers, ModelAnswer> & Sendable, of answers: Answers,
        _ tell: @MainActor @Sendable (Answers) -> Void
    ) async throws -> Answers {
        var answers = answers
        answers[keyPath: part].text = ""
        await tell(answers)
        for try await piece in try await model.generate(prompt(question), Self.generation) {
            answers[keyPath: part].text? += piece.text
            await tell(answers)
        }
        answers[keyPath: part].isWhole = true
        await tell(answers)
        return answers
    }
}
