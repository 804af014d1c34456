// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation
import Testing

/// An app's update brings another bundle to a state in which something was learned.
@Suite struct NewBundleTests {
    private let prompt = Prompt.text("Once upon")

    /// A copy of a bundle whose manifest is changed, unsigned.
    private func copy(of bundle: URL, in folder: URL, _ changed: (String) throws -> String) throws -> URL {
        let copy = folder.appending(path: "another.bundle")
        try FileManager.default.copyItem(at: bundle, to: copy)
        let manifest = copy.appending(path: "manifest.json")
        let bytes = Data(try changed(String(contentsOf: manifest, encoding: .utf8)).utf8)
        try bytes.write(to: manifest)
        try Data("\(hexadecimal(bytes))  manifest.json\n".utf8).write(to: copy.appending(path: "manifest.sha256"))
        try? FileManager.default.removeItem(at: copy.appending(path: "signature"))
        return copy
    }

    /// A model that has learned, closed again, and how likely it finds an answer, before and after.
    private func withLearned(_ test: (URL, [Score], [Score]) async throws -> Void) async throws {
        try await withModel { model, state in
            let before = try await model.score(prompt, answers: [" a time"])
            #expect(try await model.train().accepted == true)
            let learned = try await model.score(prompt, answers: [" a time"])
            #expect(learned != before)
            try await model.close()
            try await test(state, before, learned)
        }
    }

    @Test func ofTheSameBaseWhatWasLearnedAnswers() async throws {
        try await withLearned { state, _, learned in
            let newer = try copy(of: Fixture.bundle, in: state.deletingLastPathComponent()) {
                $0.replacing(/"name": *"bespoke-sdk"/, with: #""name": "another-sdk""#)
            }
            let model = try await PersonalModel.open(bundle: newer, state: state)
            #expect(try await model.versions().map(\.otherText) == [false])
            #expect(try await model.score(prompt, answers: [" a time"]) == learned)
            let report = try await model.train(Training(runSteps: 3))
            #expect(report.steps == 3)
            try await model.close()
        }
    }

    /// Tokens mean something else to it, so the base model answers until the examples are learned again.
    @Test func ofTheSameBaseWithOtherTextRulesTheVersionSaysSo() async throws {
        try await withLearned { state, before, learned in
            let model = try await PersonalModel.open(bundle: Fixture.chats, state: state)
            #expect(try await model.versions().map(\.otherText) == [true])
            #expect(try await model.score(prompt, answers: [" a time"]) == before)
            try await model.close()
            let back = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
            #expect(try await back.score(prompt, answers: [" a time"]) == learned)
            try await back.close()
        }
    }

    @Test func ofAnotherBaseItIsRefusedAndSaysWhatToDo() async throws {
        try await withLearned { state, _, learned in
            let newer = try copy(of: Fixture.chats, in: state.deletingLastPathComponent()) { words in
                let base = try #require(words.firstMatch(of: /"base_sha256": *"([0-9a-f]{64})"/)).1
                return words.replacing(base, with: String(repeating: "5", count: 64))
            }
            let refused = await error { _ = try await PersonalModel.open(bundle: newer, state: state) }
            #expect(refused?.kind == .stateError && refused?.nextStep.contains("resetForNewBase") == true)
            let model = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
            #expect(try await model.score(prompt, answers: [" a time"]) == learned)
            try await model.close()
        }
    }
}
