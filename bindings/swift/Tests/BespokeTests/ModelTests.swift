// SPDX-License-Identifier: Apache-2.0
import Foundation
import Testing

@testable import Bespoke

@Suite struct ModelTests {
    @Test func wordsInAnyScriptComeBackAsTheyWentIn() async throws {
        try await withModel(notes: false) { model, _ in
            let words = "👩🏽‍🚀 \u{0} naïve 日本語 \"quoted\" \\ \n ﷽ 🇩🇪"
            let added = try await model.examples.add(
                .promptCompletion(prompt: "Wer ist das? 🚀", completion: words), id: "🦊", mustKnow: true)
            #expect(added.created && added.split == .train && added.unusedKeys.isEmpty)
            let kept = try #require(try await model.examples.list().first)
            #expect(kept.id == "🦊")
            #expect(kept.json == ["prompt": "Wer ist das? 🚀", "completion": .string(words)])
            #expect(try await model.examples.forget("🦊").example)
            #expect(try await model.examples.count() == 0)
        }
    }

    @Test func severalExamplesAreKeptAtOnceOrNone() async throws {
        try await withModel(notes: false) { model, _ in
            let examples = Fixture.notes.map { Example.text($0) }
            #expect(await error { try await model.examples.addAll(examples + [.text("")]) }?.kind == .dataError)
            #expect(try await model.examples.count() == 0)
            let added = try await model.examples.addAll(examples, mustKnow: true)
            #expect(added.count == examples.count && added.allSatisfy(\.created))
            let page = try await model.examples.list(after: added[1].id, most: 3)
            #expect(page.map(\.id) == added[2...4].map(\.id))
        }
    }

    @Test func anErrorHasItsKindItsFourPartsAndSwiftsNames() async throws {
        try await withModel(notes: false) { model, _ in
            let refused = try #require(await error { try await model.examples.add(.text("")) })
            #expect(refused.kind == .dataError)
            #expect([refused.subject, refused.got, refused.expected, refused.nextStep].allSatisfy { !$0.isEmpty })
            #expect(await error { try await model.exportAdapter(to: URL(fileURLWithPath: "/tmp/never")) }?.kind == .adapterError)
            let unclear = await error { try await model.checkTraining(Training(settings: ["steps": 5])) }
            #expect(unclear?.kind == .configError)
            #expect(unclear?.expected.contains("runSteps") == true && unclear?.expected.contains("mostSteps") == true)
        }
        try await withFolder { folder in
            let missing = folder.appending(path: "🐚")
            let none = await error { _ = try await PersonalModel.open(bundle: missing, state: folder.appending(path: "state")) }
            #expect(none?.kind == .bundleError && none?.subject.contains("🐚") == true)
        }
    }

    @Test func aPartThatNamesAVerbIsSaidInSwiftsWords() {
        let pieces =
            #"{"next_step": [{"do": "forget", "arguments": ["\"a\""]}, ", or raise ", {"setting": "memory_mb", "value": 64}, "."]}"#
        let words = ErrorWords(references: pieces)
        #expect(words.nextStep == #"Call forget("a"), or raise memoryMb: 64."#)
        #expect(words.subject == nil)
        #expect(ErrorWords(references: "no JSON").nextStep == nil)
    }

    @Test func pinAndKeyProveABundle() async throws {
        let manifest = try Data(contentsOf: Fixture.bundle.appending(path: "manifest.json"))
        let digits = try String(contentsOf: Fixture.folder.appending(path: "signer.txt"), encoding: .utf8)
        let key = Data(stride(from: 0, to: 64, by: 2).map { UInt8(digits.dropFirst($0).prefix(2), radix: 16)! })
        try await withModel(notes: false, options: Options(trust: Trust(publicKey: key, requireAuthenticated: true))) { model, _ in
            #expect(model.authenticated == "signature")
        }
        try await withModel(notes: false, options: Options(trust: Trust(pinSha256: hexadecimal(manifest)))) { model, _ in
            #expect(model.authenticated == "pin")
        }
        try await withModel(notes: false) { model, _ in
            #expect(model.authenticated == "none")
        }
        for wrong in [
            Trust(publicKey: Data(count: 32)), Trust(requireAuthenticated: true), Trust(pinSha256: String(repeating: "0", count: 64)),
        ] {
            let refused = await error { try await withModel(notes: false, options: Options(trust: wrong)) { _, _ in } }
            #expect(refused?.kind == .signatureError)
        }
        let short = await error {
            try await withModel(notes: false, options: Options(trust: Trust(publicKey: Data(count: 31)))) { _, _ in }
        }
        #expect(short?.kind == .configError)
    }

    @Test func aBundleIsInstalledFromItsArchives() async throws {
        try await withFolder { folder in
            let archives = ["weights.zip", "method.zip"].map { Fixture.archives.appending(path: "chat/\($0)") }
            let installed = folder.appending(path: "bundle")
            try await PersonalModel.install(archives: archives, folder: installed)
            let model = try await PersonalModel.open(bundle: installed, state: folder.appending(path: "state"))
            #expect(try await model.describe().takesText)
            #expect(try await model.verify().golden)
            try await model.close()
        }
    }

    @Test func aStateMovesToABundleWithAnotherBase() async throws {
        try await withFolder { folder in
            let state = folder.appending(path: "state")
            var model = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
            try await addNotes(to: model)
            #expect(try await model.train().accepted == true)
            try await model.close()
            try await PersonalModel.resetForNewBase(bundle: Fixture.chats, state: state)
            model = try await PersonalModel.open(bundle: Fixture.chats, state: state)
            #expect(try await model.examples.count() == Int64(Fixture.notes.count))
            #expect(try await model.versions().isEmpty)
            try await model.close()
        }
    }

    @Test func aStateHasAFolderOfItsUser() async throws {
        let folder = try StateFolder.url(named: "alice")
        defer { try? FileManager.default.removeItem(at: folder) }
        #expect(folder.lastPathComponent == "alice")
        #expect(try StateFolder.url(named: "alice") == folder)
        try await PersonalModel.open(bundle: Fixture.bundle, state: folder).close()
        for name in ["", "..", ".hidden", "a/b"] {
            #expect(throws: BespokeError.self) { try StateFolder.url(named: name) }
        }
        let refused = #expect(throws: BespokeError.self) { try StateFolder.url(named: "alice", appGroup: "group.of.others") }
        #expect(refused?.kind == .configError)
    }

    @Test func closingEndsWhatRunsAndLaterCallsThrow() async throws {
        try await withModel { model, state in
            let conversation = try await model.conversation()
            try model.setPace(0.02)
            let told = Told()
            let training = Task { try await model.train { told($0) } }
            try await told.waitFor(.step)
            try await model.close()
            #expect(try await training.value.stoppedBecause == .stopRequested)
            #expect(await error { _ = try await model.examples.count() }?.kind == .stateError)
            #expect(await error { _ = try await conversation.next() }?.kind == .stateError)
            let again = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
            let run = try await again.currentRun()
            #expect(run != nil)
            try await again.close()
        }
    }

    @Test func progressMayInterruptItsCall() async throws {
        try await withModel { model, _ in
            let report = try await model.train { progress in
                if progress.phase == .step, progress.step == 3 {
                    try? model.interrupt()
                }
            }
            #expect(report.steps == 3 && report.stoppedBecause == .stopRequested)
            #expect(try await model.train().steps == Int64(Fixture.python.losses.count) - 3)
        }
    }

    @Test func aFolderIsTheSameWithAndWithoutASlash() async throws {
        try await withModel { model, state in
            try await model.close()
            let folder = URL(fileURLWithPath: path(of: state), isDirectory: true)
            let bundle = URL(fileURLWithPath: path(of: Fixture.bundle), isDirectory: true)
            #expect(folder.absoluteString.hasSuffix("/"))
            let again = try await PersonalModel.open(bundle: bundle, state: folder)
            #expect(try await again.examples.count() == Int64(Fixture.notes.count))
            let copy = folder.deletingLastPathComponent().appending(path: "adapter", directoryHint: .isDirectory)
            try await again.exportAdapter(to: copy, base: true)
            try await again.close()
        }
    }

    @Test func aNumberThatJSONDoesNotHaveIsRefused() async throws {
        try await withModel { model, _ in
            for number in [Double.nan, .infinity] {
                let refused = await error { try await model.checkTraining(Training(settings: ["learning_rate": .number(number)])) }
                #expect(refused?.kind == .configError)
            }
        }
    }

    @Test func aModelThatNobodyHoldsLeavesItsState() async throws {
        try await withFolder { folder in
            let state = folder.appending(path: "state")
            for _ in 0..<50 {
                let model = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
                #expect(try await model.examples.count() == 0)
            }
        }
    }

    @Test func manyModelsOpenedAndClosedLeaveNothingBehind() async throws {
        try await withFolder { folder in
            let state = folder.appending(path: "state")
            func opened() async throws {
                try await PersonalModel.open(bundle: Fixture.bundle, state: state).close()
            }
            for _ in 0..<20 {
                try await opened()
            }
            let (files, bytes) = (openFiles(under: folder), anonymousBytes())
            for _ in 0..<(Fixture.full ? 1000 : 20) {
                try await opened()
            }
            #expect(openFiles(under: folder) == files)
            #expect(anonymousBytes() - bytes < 2_000_000, "\(anonymousBytes() - bytes) bytes")
        }
    }

    private func openFiles(under folder: URL) -> [String] {
        let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        return descriptors.compactMap { try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)") }
            .filter { $0.hasPrefix(path(of: folder)) }
    }
}
