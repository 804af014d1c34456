// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import Bespoke

@Suite struct AnswerTests {
    @Test func anAnswerMayBeLeftInTheMiddleAndNothingIsComputedForNobody() async throws {
        try await withModel(notes: false) { model, _ in
            let generation = Generation(maxTokens: 30)
            var whole: [AnswerPiece] = []
            for try await piece in try await model.generate(.text("Once upon"), generation) {
                whole.append(piece)
            }
            #expect(whole.count == 30 && whole.last?.stoppedBecause == .maxTokens)
            #expect(whole.map(\.tokens) == Array(1...30))
            let conversation = try await model.conversation(generation)
            var left: [AnswerPiece] = []
            for try await piece in try await conversation.say(.text("Once upon")) {
                left.append(piece)
                if left.count == 3 { break }
            }
            #expect(left == Array(whole.prefix(3)))
            #expect(try await conversation.next() == whole[3])  // nobody asked for it before
        }
    }

    @Test func anAnswerIsCancelledWithItsTask() async throws {
        try await withModel(notes: false) { model, _ in
            try model.setPace(0.001)
            let answer = try await model.generate(.text("Once upon"), Generation(maxTokens: 200))
            let reading = Task { try await answer.text() }
            try await Task.sleep(for: .milliseconds(50))
            reading.cancel()
            await #expect(throws: CancellationError.self) { try await reading.value }
            try model.setPace(1)
            #expect(try await answer.conversation.next().tokens >= 1)  // the conversation goes on
        }
    }

    @Test func aPromptThatCannotBeUsedIsRefusedAndTheConversationGoesOn() async throws {
        try await withModel(notes: false) { model, _ in
            let conversation = try await model.conversation(Generation(maxTokens: 5))
            let long = String(repeating: "Once upon a time ", count: 1000)
            #expect(await error { _ = try await conversation.say(.text(long)) }?.kind == .generationError)
            #expect(try await !conversation.say(.text("Once upon")).text().isEmpty)
            #expect(await error { _ = try await model.conversation(Generation(temperature: -1)) }?.kind == .generationError)
        }
    }

    @Test func scoresAndLabelsComeInOrder() async throws {
        try await withModel(notes: false) { model, _ in
            let scores = try await model.score(.text("Once upon a"), answers: [" time", " tim"])
            #expect(scores.count == 2)
            let (first, second) = (try #require(scores[0].logProbability), try #require(scores[1].logProbability))
            #expect(first > second)
            #expect(try await model.classify(.text("Once upon a"), labels: [" time", " tim"]).label == " time")
            #expect(try await model.countTokens(.text("Once upon a")) > 1)
        }
    }

    @Test func aConversationHoldsItsModel() async throws {
        try await withFolder { folder in
            func conversation() async throws -> Conversation {
                try await PersonalModel.open(bundle: Fixture.bundle, state: folder.appending(path: "state")).conversation()
            }
            let alone = try await conversation()
            #expect(try await !alone.say(.text("Once upon")).text().isEmpty)
        }
    }
}
