// SPDX-License-Identifier: Apache-2.0
import CryptoKit
import Foundation
import Testing

@testable import Bespoke

/// What tests/support/phone_fixture.py has made: a bundle of stories260K, notes, and what Python does with them.
enum Fixture {
    static let folder = URL(fileURLWithPath: ProcessInfo.processInfo.environment["BESPOKE_FIXTURE"] ?? "run make test-swift")
    static let bundle = folder.appending(path: "chat.bundle")

    /// With chat turns, answers of the base model to other prompts, and a method that learns from corrections.
    static let chats = folder.appending(path: "older.bundle")
    static let archives = folder.appending(path: "archives")

    static let notes: [String] = read("notes.json")
    static let python: Python = read("python.json")
    static let corrected: Corrected = read("older.json")

    /// The counts of `make test-all`.
    static let full = ProcessInfo.processInfo.environment["BESPOKE_FULL"] == "1"

    struct Python: Decodable {
        let losses: [Double]
        let accepted: Bool
        let turns: [String]
    }

    struct Corrected: Decodable {
        let noted: String
        let losses: [Double?]
        let refusedBecause: RefusedBecause?
        let behaviourLoss: Double
        let behaviourTokens: Int64
        let baseLoss: Double
        let examples: Int64
    }

    static func read<Document: Decodable>(_ name: String) -> Document {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return try! decoder.decode(Document.self, from: Data(contentsOf: folder.appending(path: name)))
    }
}

/// A folder of a test's own, which goes with the test.
func withFolder<Result>(_ test: (URL) async throws -> Result) async throws -> Result {
    let folder = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    return try await test(folder)
}

/// A model of a test's own, with the notes in it where asked for.
func withModel(
    notes: Bool = true, bundle: URL = Fixture.bundle, options: Options = Options(), _ test: (PersonalModel, URL) async throws -> Void
) async throws {
    try await withFolder { folder in
        let state = folder.appending(path: "alice")
        let model = try await PersonalModel.open(bundle: bundle, state: state, options: options)
        if notes {
            try await addNotes(to: model)
        }
        try await test(model, state)
        try await model.close()
    }
}

func addNotes(to model: PersonalModel) async throws {
    for (number, note) in Fixture.notes.enumerated() {
        try await model.examples.add(.text(note), id: "note-\(number)", mustKnow: true)
    }
}

/// The error that a call throws; the test fails where it throws none.
func error(_ call: () async throws -> Void) async -> BespokeError? {
    do {
        try await call()
        Issue.record("nothing was thrown")
        return nil
    } catch {
        #expect(error is BespokeError, "\(error)")
        return error as? BespokeError
    }
}

/// What a call tells, in the order in which it was told.
final class Told: @unchecked Sendable {
    private let lock = NSLock()
    private var all: [CallProgress] = []

    var progress: [CallProgress] { lock.withLock { all } }

    func callAsFunction(_ progress: CallProgress) {
        lock.withLock { all.append(progress) }
    }

    /// Returns once `phase` was told.
    func waitFor(_ phase: CallProgress.Phase) async throws {
        while !progress.contains(where: { $0.phase == phase }) {
            try await Task.sleep(for: .milliseconds(1))
        }
    }
}

/// The sha256 of bytes.
func hexadecimal(_ data: Data) -> String {
    var hash = SHA256()
    hash.update(data: data)
    return hash.finalize().map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
}

/// What this process holds on Linux; 0 elsewhere.
func anonymousBytes() -> Int64 {
    let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = status.split(separator: "\n").first { $0.hasPrefix("RssAnon:") }
    return (line?.split(whereSeparator: \.isWhitespace).dropFirst().first).flatMap { Int64($0) }.map { $0 * 1024 } ?? 0
}
