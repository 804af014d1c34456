// SPDX-License-Identifier: Apache-2.0
import Foundation

public struct Note: Codable, Hashable, Identifiable, Sendable {
    public let id: String
    public let text: String

    /// The answer that `text` is better than; nil: an ordinary note.
    public let corrects: Corrected?

    public init(_ text: String, corrects: Corrected? = nil) {
        id = UUID().uuidString
        self.text = text
        self.corrects = corrects
    }
}

/// An answer of the assistant that its user has corrected.
public struct Corrected: Codable, Hashable, Sendable {
    public let question: String
    public let answer: String

    public init(question: String, answer: String) {
        self.question = question
        self.answer = answer
    }
}

/// What the user wrote and decided.
public struct Notebook: Codable, Equatable, Sendable {
    /// The newest first.
    public var notes: [Note] = []

    /// The user wants new notes to be learned.
    public var learns = false

    /// Notes were given to the model, and nobody had it forget everything since.
    public var hasTaught = false

    /// The model's examples have changed, and no run has ended since.
    public var hasNews = false

    public init() {}
}
