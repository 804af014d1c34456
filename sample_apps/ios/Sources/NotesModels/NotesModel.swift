// SPDX-License-Identifier: Apache-2.0
import Observation

/// The notes, the switch of learning and where learning is.
///
/// What an action begins is done to its end, whatever happens to the screen that asked for it.
@MainActor @Observable public final class NotesModel {
    /// Nil until it was read.
    public private(set) var book: Notebook?
    public private(set) var status = LearningStatus.off
    public private(set) var last: LastTime?
    public var problem: Problem?

    @ObservationIgnored private let parts: Parts

    public init(_ parts: Parts) {
        self.parts = parts
    }

    /// Whether the user can ask for it on this system.
    public var canLearnNow: Bool {
        guard #available(iOS 26, *) else { return false }
        return switch status {
        case .off, .opening, .learning: false
        case .waiting, .paused, .done, .failed: book?.notes.isEmpty == false
        }
    }

    /// Does what an end of the process left undone.
    @discardableResult public func start() -> Task<Void, Never> {
        act { try await $0.learner.follow() }
    }

    /// Follows what the system's tasks do, until its own task is cancelled or a problem is told.
    public func watch() async {
        while !Task.isCancelled, refresh() {
            try? await Task.sleep(for: .seconds(1))
        }
    }

    /// False: there is a problem.
    @discardableResult public func refresh() -> Bool {
        do {
            let (book, status, log) = (try parts.notebook.read(), try parts.learner.status(), try parts.log.read())
            if self.book != book { self.book = book }
            if self.status != status { self.status = status }
            if last != log.last { last = log.last }
            return true
        } catch {
            problem = Problem(error)
            return false
        }
    }

    @discardableResult public func write(_ text: String) -> Task<Void, Never> {
        act { try await $0.learner.write(text) }
    }

    @discardableResult public func delete(_ id: Note.ID) -> Task<Void, Never> {
        act { try await $0.learner.delete(id) }
    }

    @discardableResult public func switchOn() -> Task<Void, Never> {
        act { try await $0.learner.switchOn() }
    }

    @discardableResult public func switchOff() -> Task<Void, Never> {
        act { try $0.learner.switchOff() }
    }

    /// The words are those that the system shows.
    @discardableResult public func learnNow(title: String, subtitle: String) -> Task<Void, Never> {
        act { parts in
            guard #available(iOS 26, *) else { return }
            try await parts.learner.learnNow(title: title, subtitle: subtitle)
        }
    }

    /// The app has left the foreground: nothing is shown, so nothing is read again.
    @discardableResult public func giveMemoryBack() -> Task<Void, Never> {
        Task { [parts] in
            do {
                try await parts.giveMemoryBack()
            } catch {
                problem = Problem(error)
            }
        }
    }

    private func act(_ action: @escaping @Sendable (Parts) async throws -> Void) -> Task<Void, Never> {
        Task { [parts] in
            do {
                try await action(parts)
            } catch {
                problem = Problem(error)
            }
            refresh()
        }
    }
}
