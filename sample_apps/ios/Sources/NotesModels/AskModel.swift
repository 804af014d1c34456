// SPDX-License-Identifier: Apache-2.0
import Foundation
import Observation

/// A question and its two answers, of which the user may correct the second.
@MainActor @Observable public final class AskModel {
    public var question = ""

    /// What the user makes of the answer.
    public var better = ""

    /// Nil: nobody has asked yet.
    public private(set) var answers: Answers?
    public private(set) var isAsking = false
    public private(set) var isCorrected = false
    public private(set) var problem: Problem?

    private var asked = ""
    @ObservationIgnored private let parts: Parts

    public init(_ parts: Parts) {
        self.parts = parts
    }

    public var canAsk: Bool {
        !isAsking && !question.isBlank
    }

    /// The answer of today, once it is whole and as long as nobody has corrected it.
    public var correctable: Corrected? {
        guard let after = answers?.after, after.isWhole, let text = after.text, !text.isBlank, !isAsking, !isCorrected else { return nil }
        return Corrected(question: asked, answer: text)
    }

    public var canSave: Bool {
        guard let correctable else { return false }
        return !better.isBlank && better.trimmed != correctable.answer.trimmed
    }

    @discardableResult public func ask() -> Task<Void, Never>? {
        guard canAsk else { return nil }
        asked = question.trimmed
        (answers, isAsking, isCorrected, problem, better) = (Answers(), true, false, nil, "")
        return Task { [parts, asked] in
            do {
                try await parts.assistant.ask(asked) { [weak self] in self?.answers = $0 }
            } catch {
                problem = Problem(error)
            }
            isAsking = false
            better = correctable?.answer.trimmed ?? ""
        }
    }

    @discardableResult public func correct() -> Task<Void, Never>? {
        guard canSave, let correctable else { return nil }
        return Task { [parts, better = better.trimmed] in
            do {
                try await parts.learner.correct(correctable, better: better)
                isCorrected = true
            } catch {
                problem = Problem(error)
            }
        }
    }
}

extension String {
    public var trimmed: String { trimmingCharacters(in: .whitespacesAndNewlines) }

    public var isBlank: Bool { trimmed.isEmpty }
}
