// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Runs a model's executor as the framework does: the transcript grows by a prompt and by what the channel was sent.
public final class LanguageModelSession: @unchecked Sendable {
    public struct Response: Sendable {
        public let content: String
        public let pieces: [String]
        public let tokenCount: Int
        public let input: LanguageModelExecutorGenerationChannel.Usage.Input?
        public let output: LanguageModelExecutorGenerationChannel.Usage.Output?
    }

    public private(set) var transcript: Transcript
    private let answer: @Sendable (LanguageModelExecutorGenerationRequest, LanguageModelExecutorGenerationChannel) async throws -> Void

    public convenience init(model: some LanguageModel, instructions: String) {
        let segments = [Transcript.Segment.text(.init(content: instructions))]
        self.init(model: model, transcript: Transcript(entries: [.instructions(.init(segments: segments))]))
    }

    public init<Model: LanguageModel>(model: Model, transcript: Transcript = Transcript()) {
        self.transcript = transcript
        let executor = try! Model.Executor(configuration: model.executorConfiguration)
        answer = { request, channel in
            try await executor.respond(to: request, model: model, streamingInto: channel)
        }
    }

    public func respond(to prompt: String, options: GenerationOptions = GenerationOptions()) async throws -> Response {
        transcript.append(.prompt(.init(segments: [.text(.init(content: prompt))])))
        let received = Received()
        let request = LanguageModelExecutorGenerationRequest(id: UUID(), transcript: transcript, generationOptions: options)
        try await answer(request, LanguageModelExecutorGenerationChannel { await received.take($0) })
        let response = await received.response
        transcript.append(.response(.init(segments: [.text(.init(content: response.content))])))
        return response
    }
}

private actor Received {
    private var pieces: [String] = []
    private var tokenCount = 0
    private var usage: (LanguageModelExecutorGenerationChannel.Usage.Input, LanguageModelExecutorGenerationChannel.Usage.Output)?

    func take(_ event: LanguageModelExecutorGenerationChannel.Event) {
        switch event.action.kind {
        case .text(let text, let count):
            pieces.append(text)
            tokenCount += count
        case .usage(let input, let output):
            usage = (input, output)
        }
    }

    var response: LanguageModelSession.Response {
        LanguageModelSession.Response(
            content: pieces.joined(), pieces: pieces, tokenCount: tokenCount, input: usage?.0, output: usage?.1)
    }
}
