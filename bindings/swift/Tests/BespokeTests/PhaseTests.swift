// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation
import Testing

/// What a training tells, in its order: open, judge, a step for each step, judge, commit.
@Suite struct PhaseTests {
    /// The places of ``Told`` in a whole training at which a phase begins, and one in the middle of its steps.
    private func places() async throws -> [Int] {
        let told = Told()
        try await withModel { model, _ in
            let whole = try await model.train { told($0) }
            #expect(whole.losses == Fixture.python.losses)
        }
        let phases = told.progress.map(\.phase)
        let begins = phases.indices.filter { $0 == 0 || phases[$0] != phases[$0 - 1] }
        #expect(Set(phases) == [.open, .judge, .step, .commit])
        return begins + [phases.firstIndex(of: .step)! + 20]
    }

    @Test func aStopInEachPhaseEndsTheCallAndTheNextOneGoesOn() async throws {
        for place in try await places() {
            try await withModel { model, _ in
                let told = Told()
                let stopped = try await model.train { progress in
                    told(progress)
                    if told.progress.count == place + 1 { try? model.interrupt() }
                }
                let phase = told.progress[place].phase
                let later = told.progress.dropFirst(place + 1).map(\.phase)
                #expect(!later.contains(.step), "a step ended after a stop in \(phase)")
                if stopped.accepted == nil {
                    #expect(stopped.stoppedBecause == .stopRequested)
                    let rest = try await model.train()
                    #expect(stopped.losses + rest.losses == Fixture.python.losses)
                    #expect(rest.accepted == Fixture.python.accepted)
                } else {
                    #expect(phase == .commit && stopped.losses == Fixture.python.losses)
                }
            }
        }
    }

    @Test func aModelThatIsClosedInEachPhaseLosesNothing() async throws {
        for place in try await places() {
            try await withModel { model, state in
                let told = Told()
                let closing = Closing(model)
                let stopped = try await model.train { progress in
                    told(progress)
                    if told.progress.count == place + 1 { closing.begin() }
                }
                try await closing.end()
                let again = try await PersonalModel.open(bundle: Fixture.bundle, state: state)
                let rest = stopped.accepted == nil ? try await again.train().losses : []
                #expect(stopped.losses + rest == Fixture.python.losses)
                #expect(try await again.versions().count == 1)
                try await again.close()
            }
        }
    }
}

/// A close that begins while a call tells its progress.
private final class Closing: @unchecked Sendable {
    private let model: PersonalModel
    private var task: Task<Void, any Error>?

    init(_ model: PersonalModel) {
        self.model = model
    }

    func begin() {
        task = Task { [model] in try await model.close() }
        Thread.sleep(forTimeInterval: 0.02)  // the task's, which ends the call
    }

    func end() async throws {
        try await task?.value
    }
}
