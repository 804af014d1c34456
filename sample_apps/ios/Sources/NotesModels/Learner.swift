// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// Learning from the notes: only while the user wants it, and never from a note that is gone.
public final class Learner: Sendable {
    private let notebook: JSONFile<Notebook>
    private let log: JSONFile<LearningLog>
    private let models: Models
    private let learning: Learning
    private let usersState: URL
    private let prompt: @Sendable (String) -> Prompt

    init(
        notebook: JSONFile<Notebook>, log: JSONFile<LearningLog>, models: Models, learning: Learning, usersState: URL,
        prompt: @escaping @Sendable (String) -> Prompt
    ) {
        self.notebook = notebook
        self.log = log
        self.models = models
        self.learning = learning
        self.usersState = usersState
        self.prompt = prompt
    }

    public func status() throws -> LearningStatus {
        let book = try notebook.read()
        guard book.learns else { return .off }
        if let now = learning.status { return now }
        let log = try log.read()
        if book.notes.isEmpty { return .paused(.noExamples) }
        if log.pause == .noExamples, book.hasNews { return .waiting }  // a note has come since
        if let pause = log.pause { return .paused(pause, failure: log.failure) }
        if let failure = log.failure, !book.hasNews { return .failed(failure) }
        return book.hasNews ? .waiting : .done
    }

    public func switchOn() async throws {
        try notebook.change { ($0.learns, $0.hasTaught, $0.hasNews) = (true, true, true) }
        do {
            try log.change { ($0.pause, $0.failure) = (nil, nil) }
            try await follow()
        } catch {
            try notebook.change { $0.learns = false }
            throw error
        }
    }

    public func switchOff() throws {
        try notebook.change { $0.learns = false }
        learning.cancel()
    }

    /// The words are those that the system shows.
    @available(iOS 26, *)
    public func learnNow(title: String, subtitle: String) async throws {
        try await follow()
        try learning.learnNow(title: title, subtitle: subtitle)
    }

    public func write(_ text: String) async throws {
        try notebook.change { $0.notes.insert(Note(text), at: 0) }
        try await follow()
    }

    /// The better answer is a note like the others. It takes the place of an earlier correction of the same question.
    public func correct(_ answer: Corrected, better: String) async throws {
        try notebook.change { book in
            book.notes.removeAll { $0.corrects?.question == answer.question }
            book.notes.insert(Note(better, corrects: answer), at: 0)
        }
        try await follow()
    }

    public func delete(_ id: Note.ID) async throws {
        try notebook.change { book in book.notes.removeAll { $0.id == id } }
        try await follow()
    }

    /// Makes the model's examples the notes of now, and asks for time to learn where they changed. What an end of the process left undone,
    /// the next call does.
    public func follow() async throws {
        guard try notebook.read().hasTaught else { return }
        try await models.users { [self] model in
            let book = try notebook.read()
            let taught = Set(try await model.examples.list().map(\.id))
            let gone = taught.subtracting(book.notes.map(\.id))
            let new = book.learns ? book.notes.reversed().filter { !taught.contains($0.id) } : []
            if !gone.isEmpty || !new.isEmpty {
                try notebook.change { $0.hasNews = true }  // first: what a kill interrupts is learned all the same
            }
            for id in gone {
                try await model.examples.forget(id)
            }
            var isLearned = !gone.isEmpty
            for note in new {
                do {
                    try await model.examples.add(example(note), id: note.id, mustKnow: true)  // what somebody noted down is to be known
                    isLearned = true
                } catch let error as BespokeError where error.kind == .dataError {
                    continue  // nothing can be learned from it, for instance from a single letter
                }
            }
            if !isLearned {
                try notebook.change { $0.hasNews = book.hasNews }
            }
        }
        let book = try notebook.read()
        if book.learns && book.hasNews && !book.notes.isEmpty {
            try learning.schedule()
        }
    }

    /// Makes a pair of answers of a correction. A method that learns no preferences learns the better one alone.
    private func example(_ note: Note) -> Example {
        guard let corrected = note.corrects else { return .text(note.text) }
        switch prompt(corrected.question) {
        case .messages(let messages):
            return .correction(prompt: messages, chosen: note.text, rejected: corrected.answer)
        case .text(let text):
            let gap = corrected.answer.prefix(while: \.isWhitespace)  // between the text and the words that continue it
            return .preference(prompt: text, chosen: gap + note.text, rejected: corrected.answer)
        case .tokens:
            fatalError("a question is words")
        }
    }

    /// The oldest first; the last one answers.
    public func versions() async throws -> [Version] {
        guard try notebook.read().hasTaught else { return [] }
        return try await models.users { try await $0.versions() }
    }

    public func rollBack() async throws {
        _ = try await models.users { try await $0.rollback() }
    }

    /// The notes themselves stay.
    public func forgetEverything() async throws {
        try switchOff()
        try await learning.hasEnded()
        try await models.closed { [usersState] in
            if FileManager.default.fileExists(atPath: usersState.path) {
                try FileManager.default.removeItem(at: usersState)
            }
        }
        try log.change { $0 = LearningLog() }
        try notebook.change { ($0.hasTaught, $0.hasNews) = (false, false) }
    }
}
