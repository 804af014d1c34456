// SPDX-License-Identifier: Apache-2.0
import BackgroundTasks
import Bespoke
import BespokeBackground
import Foundation
import Testing

@testable import NotesModels

/// What tests/support/phone_fixture.py has made.
enum Fixture {
    static let folder = URL(fileURLWithPath: ProcessInfo.processInfo.environment["BESPOKE_FIXTURE"] ?? "run make test-swift")

    /// Its model has no chat turns: a question is a text to go on with.
    static let chat = folder.appending(path: "chat.bundle")

    /// The same as an app ships it.
    static let zip = folder.appending(path: "archives/chat/bundle.zip")

    /// With chat turns, and a method that learns from corrections.
    static let turns = folder.appending(path: "older.bundle")

    static let notes: [String] = try! JSONDecoder().decode([String].self, from: Data(contentsOf: folder.appending(path: "notes.json")))
}

var system: System { BGTaskScheduler.shared.system }

/// The app in a folder of a test's own, launched by the system of the stubs, over the real core.
final class App: @unchecked Sendable {
    let folder: URL
    private let bundle: URL
    private let prompt: @Sendable (String) -> Prompt
    private let lock = NSLock()
    private var said = DeviceState()
    private(set) var parts: Parts!

    /// What the device says.
    var device: DeviceState {
        get { lock.withLock { said } }
        set { lock.withLock { said = newValue } }
    }

    init(_ folder: URL, bundle: URL, prompt: @escaping @Sendable (String) -> Prompt) {
        self.folder = folder
        self.bundle = bundle
        self.prompt = prompt
        launch()
    }

    /// A process that begins. What an earlier one held in memory is gone.
    func launch() {
        system.startProcess(permitted: [Learning.identifier, "\(Learning.identifier).now.*"])
        system.isCharging = true
        system.isInForeground = true
        parts = Parts(bundle: bundle, folder: folder, prompt: prompt) { [weak self] in self?.device ?? DeviceState() }
        #expect(parts.learning.register())
        system.launchEnds()
    }

    /// The system gives a time on the charger; whether a run ended in it.
    func night() async -> Bool? {
        #expect(system.launch(Learning.identifier) == .launched)
        return await system.hasEnded(Learning.identifier, seconds: 120)
    }

    func writeNotes() async throws {
        for note in Fixture.notes {
            try await parts.learner.write(note)
        }
    }

    /// As a screen sees them: newest first.
    var texts: [String] {
        get throws { try parts.notebook.read().notes.map(\.text) }
    }

    /// The ids of the model's examples, looked at as another process would.
    func examples() async throws -> Set<String> {
        let model = try await PersonalModel.open(bundle: bundle, state: folder.appending(path: "learned"))
        let ids = try await model.examples.list().map(\.id)
        try await model.close()
        return Set(ids)
    }

    /// What the answers are in the end.
    func asked(_ question: String) async throws -> Answers {
        let told = Told()
        try await parts.assistant.ask(question) { told.answers = $0 }
        return await told.answers
    }

    /// What the model has of a note.
    func example(_ id: Note.ID) async throws -> [String: JSONValue] {
        let model = try await PersonalModel.open(bundle: bundle, state: folder.appending(path: "learned"))
        let example = try await model.examples.list().first { $0.id == id }
        try await model.close()
        guard case .object(let fields) = try #require(example).json else { return [:] }
        return fields
    }

    /// Of the models' states, in this process.
    var openFiles: [String] {
        let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        let files = descriptors.compactMap { try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)") }
        return files.filter { $0.contains("/\(folder.lastPathComponent)/") }
    }

    /// Returns once a run has got so far.
    func waitUntilItLearns(step least: Int = 0) async throws {
        while true {
            if case .learning(let step, _) = try parts.learner.status(), step >= least { return }
            try await Task.sleep(for: .milliseconds(5))
        }
    }
}

nonisolated(nonsending) func withApp(
    bundle: URL = Fixture.chat, prompt: @escaping @Sendable (String) -> Prompt = Prompt.text, _ test: (App) async throws -> Void
) async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let app = App(folder, bundle: bundle, prompt: prompt)
    try await test(app)
    try await app.parts.giveMemoryBack()
}

@MainActor private final class Told {
    var answers = Answers()

    nonisolated init() {}
}
