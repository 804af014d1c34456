// SPDX-License-Identifier: Apache-2.0
import Foundation
import Testing

@testable import Bespoke

private let slow = 0.02  // a share of the time, so that a training is still there when it is looked at

@Suite struct TrainingTests {
    @Test func slicesHaveTheLossesOfARunInPythonAndWhatWasLearnedAnswersInTwoTurns() async throws {
        try await withModel { model, _ in
            var slices: [TrainReport] = []
            for steps in [17, 16, nil] as [Int64?] {
                slices.append(try await model.train(Training(mostSteps: steps)))
            }
            #expect(slices.map(\.steps) == [17, 16, 17])
            #expect(slices.dropLast().allSatisfy { $0.stoppedBecause == .stepsDone && $0.accepted == nil })
            #expect(Set(slices.map(\.run)).count == 1)
            #expect(slices.flatMap(\.losses) == Fixture.python.losses)
            #expect(slices.last?.accepted == Fixture.python.accepted)
            let conversation = try await model.conversation(Generation(maxTokens: 20))
            var turns: [String] = []
            for text in ["Once upon", " Then Tom"] {
                turns.append(try await conversation.say(.text(text)).text())
            }
            #expect(turns == Fixture.python.turns)
        }
    }

    @Test func progressIsToldWhileItTrains() async throws {
        try await withModel { model, _ in
            let told = Told()
            try await _ = model.train(Training(runSteps: 5)) { told($0) }
            let steps = told.progress.filter { $0.phase == .step }
            #expect(steps.map(\.step) == [1, 2, 3, 4, 5])
            #expect(steps.allSatisfy { $0.steps == 5 && $0.loss != nil && $0.footprintBytes > 0 })
        }
    }

    @Test func aCancelledTrainingReportsWhatItDidAndGoesOnThere() async throws {
        try await withModel { model, _ in
            try model.setPace(slow)
            let told = Told()
            let training = Task { try await model.train { told($0) } }
            try await told.waitFor(.step)
            training.cancel()
            let report = try await training.value
            #expect(report.stoppedBecause == .stopRequested)
            #expect(try await model.currentRun()?.step == report.steps)
            try model.setPace(1)
            let rest = try await model.train()
            #expect(report.losses + rest.losses == Fixture.python.losses)
        }
    }

    @Test func itIsCancelledAtAnyInstant() async throws {
        try await withModel { model, _ in
            var chance = SystemRandomNumberGenerator()
            for _ in 0..<(Fixture.full ? 200 : 20) {
                let training = Task { try await model.train(Training(newRun: false)) }
                try await Task.sleep(for: .milliseconds(Int.random(in: 0...60, using: &chance)))
                training.cancel()
                _ = await training.result
            }
            while try await model.currentRun() != nil {
                _ = try await model.train(Training(mostSteps: 10))
            }
            #expect(try await !model.versions().isEmpty)
        }
    }

    @Test func aTaskThatWasCancelledBeforeStartsNoRun() async throws {
        try await withModel { model, _ in
            let training = Task {
                while !Task.isCancelled {}
                return try await model.train()
            }
            training.cancel()
            await #expect(throws: CancellationError.self) { try await training.value }
            let run = try await model.currentRun()
            #expect(run == nil)
        }
    }

    /// With one thread for all tasks, none would go on while a call computes.
    @Test func anExampleIsAddedAndTasksGoOnWhileCallsCompute() async throws {
        try await withModel(options: Options(waitSeconds: nil)) { model, _ in
            try model.setPace(slow)
            let told = Told()
            let training = Task { try await model.train { told($0) } }
            try await told.waitFor(.step)
            let waiting = (0..<16).map { _ in Task { try await model.evaluate() } }  // more than there are threads for tasks
            let added = try await model.examples.add(.text("A note in the middle of a step."))
            #expect(added.created)
            let run = try await model.currentRun()?.endedBecause
            #expect(run == nil)
            training.cancel()
            _ = try await training.value
            for one in waiting {
                one.cancel()
                _ = await one.result
            }
        }
    }

    @Test func aSecondCallThatComputesIsToldThatTheModelIsBusy() async throws {
        try await withModel { model, _ in
            try model.setPace(slow)
            let told = Told()
            let training = Task { try await model.train { told($0) } }
            try await told.waitFor(.step)
            #expect(await error { _ = try await model.evaluate() }?.kind == .busy)
            #expect(try await model.examples.count() == Int64(Fixture.notes.count))
            training.cancel()
            _ = try await training.value
        }
    }

    @Test func eightRunsInARowEachEnd() async throws {
        try await withModel { model, _ in
            for run in 1...8 {
                let report = try await model.train(Training(runSteps: 3))
                #expect(report.run == Int64(run) && report.steps == 3 && report.accepted != nil)
            }
        }
    }

    @Test func aLimitCountsWhatIsAddedToWhatTheProcessHeld() async throws {
        try await withModel(options: Options(memoryMb: 60)) { model, _ in
            let memory = try await model.train(Training(runSteps: 3)).memory
            #expect(memory.limitBytes == memory.idleBytes + 60_000_000)
            #expect(memory.peakBytes > memory.idleBytes && memory.peakBytes <= memory.idleBytes + 60_000_000)
            try model.setLimit(memoryMb: 0.5)
            #expect(await error { _ = try await model.train(Training(runSteps: 3)) }?.kind == .budgetExceeded)
        }
    }

    @Test func whatWasLearnedIsExportedImportedRolledBackAndForgotten() async throws {
        try await withModel { model, state in
            #expect(try await model.train().accepted == true)
            let folder = state.deletingLastPathComponent().appending(path: "adapter")
            try await model.exportAdapter(to: folder)
            let files = try FileManager.default.contentsOfDirectory(atPath: path(of: folder))
            #expect(Set(files) == ["adapter_config.json", "adapter_model.safetensors"])
            let version = try await model.importAdapter(from: folder, trustBase: true)
            #expect(try await model.versions().last?.id == version)
            let before = try await model.rollback()
            #expect(before != nil)
            #expect(try await model.examples.forget("note-1").acceptedDeleted > 0)
            try await model.reset()
            let run = try await model.currentRun()
            #expect(run == nil)
            #expect(try await model.versions().isEmpty)
        }
    }

    @Test func correctionsAreLearnedAsInPython() async throws {
        try await withModel(notes: false, bundle: Fixture.chats) { model, _ in
            let answer = [
                Example.Message(role: .user, content: "Where is the key?"), Example.Message(role: .assistant, content: "In the sea."),
            ]
            _ = try await model.correct(answer, better: "Under the blue pot.")
            try await model.examples.add(.text("The key of the shed hangs behind the green door."), id: "note", mustKnow: true)
            let question = Prompt.user("Where is the key of the shed?")
            let noted = try await model.generate(question, Generation(maxTokens: 12, notes: true)).text()
            let report = try await model.train()
            let evaluation = try await model.evaluateBehaviour()
            let python = Fixture.corrected
            #expect(noted == python.noted)
            #expect(report.losses == python.losses)
            #expect(report.refusedBecause == python.refusedBecause)
            #expect(report.behaviourLoss == python.behaviourLoss)
            #expect(report.behaviourTokens == python.behaviourTokens)
            #expect(evaluation.baseLoss == python.baseLoss)
            #expect(evaluation.examples == python.examples)
        }
    }
}
