// SPDX-License-Identifier: Apache-2.0
import BackgroundTasks
import Bespoke
import Foundation
import Testing

@testable import NotesModels

/// What the screens show and what a tap does.
@Suite(.serialized) @MainActor struct ScreenModelTests {
    @Test func notesAndStatusFollowWhatTheUserDoes() async throws {
        try await withApp { app in
            let notes = NotesModel(app.parts)
            notes.refresh()
            #expect(notes.book?.notes == [] && notes.status == .off && !notes.canLearnNow)
            await notes.write("Bread, milk, a red pencil.").value
            #expect(notes.book?.notes.map(\.text) == ["Bread, milk, a red pencil."])
            #expect(notes.book?.hasTaught == false)
            try await app.writeNotes()
            await notes.switchOn().value
            #expect(notes.status == .waiting && notes.canLearnNow)
            await notes.learnNow(title: "Learning", subtitle: "Notes").value
            let now = try #require(system.runningIdentifiers.first)
            try await app.waitUntilItLearns()
            notes.refresh()
            #expect(!notes.canLearnNow)  // it is at work already
            #expect(await system.hasEnded(now, seconds: 120) == true)
            notes.refresh()
            #expect(notes.status == .done && notes.last?.accepted != nil)
            await notes.delete(try #require(notes.book?.notes.last).id).value
            #expect(notes.book?.notes.count == Fixture.notes.count)
            #expect(notes.status == .waiting)
            await notes.switchOff().value
            #expect(notes.status == .off && notes.problem == nil)
        }
    }

    @Test func aProblemIsShownAndLearningStaysOff() async throws {
        try await withApp(bundle: URL(fileURLWithPath: "/nowhere/chat.bundle")) { app in
            let notes = NotesModel(app.parts)
            await notes.switchOn().value
            guard case .other(let description)? = notes.problem else {
                Issue.record("\(String(describing: notes.problem))")
                return
            }
            #expect(description.contains("/nowhere/chat.bundle"))
            #expect(notes.status == .off && notes.book?.learns == false)
        }
    }

    @Test func beforeAnythingIsLearnedBothAnswersAreAlikeAndCanBeCorrected() async throws {
        try await withApp { app in
            let model = AskModel(app.parts)
            model.question = "  "
            #expect(!model.canAsk && model.ask() == nil)
            model.question = " Once upon "
            let asking = try #require(model.ask())
            #expect(model.isAsking && !model.canAsk && model.correctable == nil)
            await asking.value
            let answers = try #require(model.answers)
            #expect(answers.learned == false && answers.before == answers.after)
            #expect(try #require(answers.before.text).count > 10)
            #expect(model.better == answers.after.text?.trimmed)
            #expect(!model.canSave)  // nothing was changed
            model.better = "a time there was a ferry."
            #expect(model.canSave)
            await model.correct()?.value
            #expect(model.isCorrected && model.correctable == nil && model.problem == nil)
            let note = try #require(app.parts.notebook.read().notes.first)
            #expect(note.text == "a time there was a ferry." && note.corrects?.question == "Once upon")
        }
    }

    @Test func versionsAreListedAndGoBack() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(await app.night() == true)
            let model = VersionsModel(app.parts)
            await model.refresh()
            let row = try #require(model.rows(Catalog.ofApp.words("en")).first)
            #expect(row.title == "Version 1, the one that answers")
            #expect(row.detail.wholeMatch(of: /Kept on [A-Z][a-z]{2} \d+, \d{4}, after \d+ steps/) != nil, "\(row.detail)")
            await model.rollBack().value
            #expect(model.versions == [] && model.hasTaught && model.problem == nil)
            await model.forgetEverything().value
            #expect(!model.hasTaught && model.problem == nil && !model.isWorking)
        }
    }

    @Test func whoLeavesTheAppHasNoModelOpen() async throws {
        try await withApp { app in
            let notes = NotesModel(app.parts)
            await notes.switchOn().value
            _ = try await app.asked("Once upon")
            #expect(!app.openFiles.isEmpty)
            await notes.giveMemoryBack().value
            #expect(app.openFiles.isEmpty && notes.problem == nil)
        }
    }

    @Test func whatTrainsNowIsNotRolledBackAndTheUserIsTold() async throws {
        try await withApp { app in
            try await app.writeNotes()
            try await app.parts.learner.switchOn()
            #expect(await app.night() == true)
            try await app.parts.learner.write("The ferry leaves at nine.")
            #expect(system.launch(Learning.identifier) == .launched)
            try await app.waitUntilItLearns()
            let model = VersionsModel(app.parts)
            await model.rollBack().value
            #expect(model.problem == .busy)
            #expect(model.versions?.count == 1)
            #expect(await system.expire(Learning.identifier))
        }
    }
}
