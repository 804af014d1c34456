// SPDX-License-Identifier: Apache-2.0
#if canImport(FoundationModels)
import Bespoke
import BespokeFoundationModels
import FoundationModels
import Testing

@Suite struct FoundationModelsTests {
    private let greedy = GenerationOptions(samplingMode: .greedy, maximumResponseTokens: 12)

    private func withChat(_ test: (PersonalModel) async throws -> Void) async throws {
        try await withModel(notes: false, bundle: Fixture.chats) { model, _ in
            try await test(model)
        }
    }

    @Test func aSessionAnswersAsAConversationDoesOverTwoTurns() async throws {
        try await withChat { model in
            let session = LanguageModelSession(model: PersonalLanguageModel(model), instructions: "Tell stories.")
            let conversation = try await model.conversation(Generation(maxTokens: 12))
            let system = Example.Message(role: .system, content: "Tell stories.")
            let first = Example.Message(role: .user, content: "Once upon a time")
            let expected = [
                try await conversation.say(.messages([system, first])).text(),
                try await conversation.say(.user("And then?")).text(),
            ]
            let answers = [
                try await session.respond(to: "Once upon a time", options: greedy),
                try await session.respond(to: "And then?", options: greedy),
            ]
            #expect(answers.map(\.content) == expected)
            #expect(answers.allSatisfy { $0.tokenCount <= 12 && $0.pieces.count > 1 })
            #expect(answers.map { $0.output?.totalTokenCount } == [12, 12])
            #expect(answers[0].input?.cachedTokenCount == 0)
            let second = try #require(answers[1].input)
            #expect(second.cachedTokenCount > 0 && second.cachedTokenCount < second.totalTokenCount)
        }
    }

    @Test func aTranscriptThatDidNotGrowBeginsAnew() async throws {
        try await withChat { model in
            let personal = PersonalLanguageModel(model)
            let session = LanguageModelSession(model: personal, instructions: "Tell stories.")
            _ = try await session.respond(to: "Once upon a time", options: greedy)
            let other = LanguageModelSession(model: personal, instructions: "Be brief.")
            let answer = try await other.respond(to: "Once upon a time", options: greedy)
            #expect(answer.input?.cachedTokenCount == 0)
            let messages = [
                Example.Message(role: .system, content: "Be brief."), Example.Message(role: .user, content: "Once upon a time"),
            ]
            #expect(try await answer.content == model.generate(.messages(messages), Generation(maxTokens: 12)).text())
        }
    }

    @Test func aFullContextIsTheFrameworksError() async throws {
        try await withChat { model in
            let session = LanguageModelSession(model: PersonalLanguageModel(model))
            let long = String(repeating: "Once upon a time there was a dog. ", count: 200)
            let size = Int(try await model.describe().contextLength)
            do {
                _ = try await session.respond(to: long, options: greedy)
                Issue.record("nothing was thrown")
            } catch LanguageModelError.contextSizeExceeded(let full) {
                #expect(full.contextSize == size && full.tokenCount >= size)
            }
        }
    }

    @Test func anAnswerThatFillsTheContextIsTheFrameworksErrorToo() async throws {
        try await withChat { model in
            let session = LanguageModelSession(model: PersonalLanguageModel(model))
            let almost = String(repeating: "Once upon a time there was a dog. ", count: 40)
            do {
                _ = try await session.respond(to: almost, options: GenerationOptions(samplingMode: .greedy))
                Issue.record("nothing was thrown")
            } catch LanguageModelError.contextSizeExceeded(let full) {
                #expect(full.tokenCount >= full.contextSize - 1)
            }
        }
    }

    @Test func aCancelledAnswerEnds() async throws {
        try await withChat { model in
            try model.setPace(0.001)
            let session = LanguageModelSession(model: PersonalLanguageModel(model))
            let options = greedy
            let answering = Task { try await session.respond(to: "Once upon a time", options: options) }
            try await Task.sleep(for: .milliseconds(50))
            answering.cancel()
            await #expect(throws: CancellationError.self) { try await answering.value }
        }
    }

    @Test func whatIsNoTurnIsRefused() async throws {
        try await withChat { model in
            let session = LanguageModelSession(
                model: PersonalLanguageModel(model), transcript: Transcript(entries: [.toolOutput("weather: rain")]))
            await #expect(throws: NotATurn.self) { try await session.respond(to: "Once upon a time", options: greedy) }
        }
    }

    @Test func itOffersNoToolsAndNoSchemas() async throws {
        try await withChat { model in
            let capabilities = PersonalLanguageModel(model).capabilities
            #expect(!capabilities.contains(.toolCalling) && !capabilities.contains(.guidedGeneration))
        }
    }
}
#endif
