// SPDX-License-Identifier: Apache-2.0
import BackgroundTasks
import Bespoke
import BespokeBackground
import Foundation
import Testing

@testable import NotesModels

@Suite(.serialized) struct LearnerTests {
    @Test func fromTheSwitchToAnswersWithWhatWasLearnedAndBack() async throws {
        try await withApp { app in
            let learner = app.parts.learner
            try await app.writeNotes()
            #expect(try learner.status() == .off)
            #expect(!FileManager.default.fileExists(atPath: app.folder.appending(path: "learned").path))  // nothing reads the notes
            try await learner.switchOn()
            #expect(try learner.status() == .waiting)
            #expect(system.pendingIdentifiers == [Learning.identifier])
            #expect(await app.night() == true)
            #expect(try learner.status() == .done)
            let last = try #require(try app.parts.log.read().last)
            #expect(last.accepted == true)
            #expect(last.totalSteps == 50)
            #expect(try #require(last.lastLoss) < (try #require(last.firstLoss)))
            #expect(last.addedBytes > 0 && last.bytesWritten > 0 && last.seconds > 0)
            let versions = try await learner.versions()
            #expect(versions.count == 1)

            let answers = try await app.asked("Once upon")
            #expect(answers.learned == true)
            #expect(answers.before.isWhole && answers.after.isWhole)
            #expect(answers.before.text != answers.after.text)

            try await learner.rollBack()
            #expect(try await learner.versions() == [])
            let back = try await app.asked("Once upon")
            #expect(back.learned == false)
            #expect(back.after == answers.before)

            try await learner.forgetEverything()
            let book = try app.parts.notebook.read()
            #expect(!book.learns && !book.hasTaught)
            #expect(book.notes.map(\.text) == Fixture.notes.reversed())  // the notes stay
            #expect(!FileManager.default.fileExists(atPath: app.folder.appending(path: "learned").path))
            #expect(try app.parts.log.read() == LearningLog())
            #expect(system.pendingIdentifiers.isEmpty)
        }
    }

    @Test func aDeletedNoteTakesAlongWhatWasLearnedFromIt() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(await app.night() == true)
            #expect(try await app.parts.learner.versions().count == 1)
            let note = try app.parts.notebook.read().notes[3]
            try await app.parts.learner.delete(note.id)
            #expect(try await app.parts.learner.versions() == [])
            #expect(try await app.examples().contains(note.id) == false)
            #expect(try app.parts.learner.status() == .waiting)  // for a run without it
            #expect(system.pendingIdentifiers == [Learning.identifier])
        }
    }

    @Test func aNoteThatIsDeletedWhileItLearnsIsNotLearned() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(system.launch(Learning.identifier) == .launched)
            try await app.waitUntilItLearns(step: 1)
            let note = try app.parts.notebook.read().notes[3]
            try await app.parts.learner.delete(note.id)
            #expect(await system.hasEnded(Learning.identifier, seconds: 120) != nil)
            #expect(try await app.examples() == Set(app.parts.notebook.read().notes.map(\.id)))
            if try await app.parts.learner.versions().isEmpty {
                #expect(await app.night() == true)
            }
            #expect(try await app.parts.learner.versions().count == 1)
        }
    }

    @Test func theBundleIsReadAsTheZipThatAnAppShips() async throws {
        try await withApp(bundle: Fixture.zip) { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(await app.night() == true)
            let answers = try await app.asked("Once upon")
            #expect(answers.learned == true && answers.before.text != answers.after.text)
        }
    }

    @Test func whatIsSwitchedOffLearnsNothingNewAndStillForgets() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(await app.night() == true)
            try app.parts.learner.switchOff()
            try await app.parts.learner.write("Written while learning was off.")
            #expect(try await app.examples().count == Fixture.notes.count)
            #expect(try await app.parts.learner.versions().count == 1)
            #expect(system.pendingIdentifiers.isEmpty)
            try await app.parts.learner.delete(try #require(app.parts.notebook.read().notes.last).id)
            #expect(try await app.examples().count == Fixture.notes.count - 1)
            try await app.parts.learner.switchOn()
            #expect(try await app.examples() == Set(app.parts.notebook.read().notes.map(\.id)))
        }
    }

    @Test func aRunThatIsSwitchedOffEndsAndIsNotAskedForAgain() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(system.launch(Learning.identifier) == .launched)
            try await app.waitUntilItLearns()
            try app.parts.learner.switchOff()
            #expect(await system.hasEnded(Learning.identifier, seconds: 30) == false)
            #expect(system.pendingIdentifiers.isEmpty)
            #expect(try await app.parts.learner.versions() == [])
        }
    }

    @Test func everythingIsForgottenAlsoWhileItLearns() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(system.launch(Learning.identifier) == .launched)
            try await app.waitUntilItLearns()
            try await app.parts.learner.forgetEverything()
            #expect(!FileManager.default.fileExists(atPath: app.folder.appending(path: "learned").path))
            #expect(system.pendingIdentifiers.isEmpty && system.runningIdentifiers.isEmpty)
        }
    }

    @Test func learningGoesOnInTheNextProcess() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(system.launch(Learning.identifier) == .launched)
            try await app.waitUntilItLearns(step: 3)
            #expect(await system.expire(Learning.identifier))
            let before = try await stepOfTheRun(app)
            #expect(before >= 3)
            #expect(try app.parts.learner.status() == .waiting)
            try await app.parts.giveMemoryBack()

            app.launch()
            #expect(try app.texts == Fixture.notes.reversed())
            try await app.parts.learner.follow()
            #expect(try await stepOfTheRun(app) == before)
            #expect(await app.night() == true)
            #expect(try app.parts.log.read().last?.totalSteps == 50)
            #expect(try await app.parts.learner.versions().count == 1)
        }
    }

    private func stepOfTheRun(_ app: App) async throws -> Int64 {
        let model = try await PersonalModel.open(bundle: Fixture.chat, state: app.folder.appending(path: "learned"))
        let run = try await model.currentRun()
        try await model.close()
        return run?.step ?? 0
    }

    @Test func whatAnEndOfTheProcessLeftUndoneIsDoneAtTheNextLaunch() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            // A process that ended between the notebook and the model.
            try app.parts.notebook.change { book in
                book.notes.removeLast(2)
                book.notes.insert(Note("The ferry leaves at nine."), at: 0)
            }
            try await app.parts.giveMemoryBack()
            app.launch()
            #expect(system.pendingIdentifiers.isEmpty)
            try await app.parts.learner.follow()
            #expect(try await app.examples() == Set(app.parts.notebook.read().notes.map(\.id)))
            #expect(system.pendingIdentifiers == [Learning.identifier])
        }
    }

    @Test func aNoteThatNothingCanBeLearnedFromStaysANote() async throws {
        try await withApp { app in
            try await app.parts.learner.switchOn()
            #expect(try app.parts.learner.status() == .paused(.noExamples))
            try await app.parts.learner.write("")
            #expect(try app.texts == [""])
            #expect(try await app.examples().isEmpty)
        }
    }

    @Test func whereEveryNoteIsGoneLearningWaitsForTheNext() async throws {
        try await withApp { app in
            try await app.parts.learner.switchOn()
            try await app.parts.learner.write("Bread, milk, a red pencil.")
            try await app.parts.learner.delete(try #require(app.parts.notebook.read().notes.first).id)
            #expect(await app.night() == false)
            #expect(try app.parts.learner.status() == .paused(.noExamples))
            #expect(system.pendingIdentifiers.isEmpty)
            try await app.parts.learner.write("The ferry leaves at nine.")
            #expect(try app.parts.learner.status() == .waiting)
            #expect(system.pendingIdentifiers == [Learning.identifier])
        }
    }

    @Test func aHotPhoneAndOneThatSavesPowerWait() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            app.device = DeviceState(warmth: .critical)
            #expect(await app.night() == false)
            #expect(try app.parts.learner.status() == .paused(.hot))
            app.device = DeviceState(isLowPowerModeEnabled: true)
            #expect(await app.night() == false)
            #expect(try app.parts.learner.status() == .paused(.powerSave))
            app.device = DeviceState(availableBytes: 51_000_000)  // 1 MB without what is left alone
            #expect(await app.night() == false)
            let status = try app.parts.learner.status()
            guard case .paused(.memory, failure: .some) = status else {
                Issue.record("\(status)")
                return
            }
            app.device = DeviceState()
            #expect(await app.night() == true)
            #expect(try app.parts.learner.status() == .done)
        }
    }

    @Test func learnNowNeedsNoCharger() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            system.isCharging = false
            try await app.parts.learner.learnNow(title: "Learning", subtitle: "Notes")
            let now = try #require(system.runningIdentifiers.first)
            #expect(now.hasPrefix("\(Learning.identifier).now."))
            try await app.waitUntilItLearns()
            #expect(await system.hasEnded(now, seconds: 120) == true)
            #expect(try app.parts.learner.status() == .done)
            #expect(try app.parts.log.read().last?.accepted != nil)
        }
    }

    @Test func aBundleThatIsNotThereLeavesLearningOff() async throws {
        try await withApp(bundle: URL(fileURLWithPath: "/nowhere/chat.bundle")) { app in
            await #expect(throws: BespokeError.self) { try await app.parts.learner.switchOn() }
            let learns = try app.parts.notebook.read().learns
            #expect(!learns)
            #expect(system.pendingIdentifiers.isEmpty)
        }
    }

    @Test func aCorrectedAnswerIsANoteAndTheLaterCorrectionTakesItsPlace() async throws {
        try await withApp(bundle: Fixture.turns, prompt: Prompt.user) { app in
            let learner = app.parts.learner
            try await app.writeNotes()
            try await learner.switchOn()
            let answers = try await app.asked("Where is the ball?")
            let said = Corrected(question: "Where is the ball?", answer: try #require(answers.after.text))
            try await learner.correct(said, better: "In the park.")
            try await learner.correct(said, better: "In the pond.")
            #expect(try app.texts == ["In the pond."] + Fixture.notes.reversed())
            let note = try #require(app.parts.notebook.read().notes.first)
            #expect(note.corrects == said)
            let pair = try await app.example(note.id)
            #expect(pair["chosen"] == .string("In the pond."))
            #expect(pair["rejected"] == .string(said.answer))
            try await learner.delete(note.id)
            #expect(try await app.examples().count == Fixture.notes.count)
        }
    }

    @Test func whereLearningIsOffACorrectionWaitsAsTheNotesDo() async throws {
        try await withApp { app in
            try await app.parts.learner.correct(Corrected(question: "Once upon", answer: " a time"), better: "In the pond.")
            let hasTaught = try app.parts.notebook.read().hasTaught
            #expect(!hasTaught)
            try await app.parts.learner.switchOn()
            let pair = try await app.example(try #require(app.parts.notebook.read().notes.first).id)
            #expect(pair["prompt"] == .string("Once upon"))
            #expect(pair["chosen"] == .string(" In the pond."))
        }
    }
}
