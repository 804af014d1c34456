// SPDX-License-Identifier: Apache-2.0
#if os(Linux) || os(macOS)
import Foundation
import Testing

@testable import Bespoke

@Suite struct KilledTests {
    @Test(arguments: [1, 20, 37]) func aRunOfAKilledProcessGoesOnWithTheSameLosses(atStep step: Int) async throws {
        try await withFolder { folder in
            let state = folder.appending(path: "state")
            var model = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
            try await addNotes(to: model)
            try await model.close()
            try killLearner(of: state, atStep: step)
            model = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
            let rest = try await model.train()
            #expect(rest.losses == Array(Fixture.python.losses.suffix(Int(rest.steps))))
            #expect(rest.steps <= Fixture.python.losses.count - step + 1)  // the last step may not be committed
            #expect(rest.accepted == Fixture.python.accepted)
            try await model.close()
        }
    }

    private func killLearner(of state: URL, atStep step: Int) throws {
        let learner = Process()
        // Next to the program of the tests.
        learner.executableURL = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent().appending(path: "Learner")
        learner.arguments = [path(of: Fixture.bundle), path(of: state)]
        let said = Pipe()
        learner.standardOutput = said
        try learner.run()
        var text = ""
        while !text.contains("\(step)\n") {
            let data = said.fileHandleForReading.availableData
            try #require(!data.isEmpty, "the learner has ended")
            text += String(decoding: data, as: UTF8.self)
        }
        kill(learner.processIdentifier, SIGKILL)
        learner.waitUntilExit()
        #expect(learner.terminationReason == .uncaughtSignal)
    }
}
#endif
