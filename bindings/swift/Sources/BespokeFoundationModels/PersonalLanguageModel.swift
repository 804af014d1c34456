// SPDX-License-Identifier: Apache-2.0
#if canImport(FoundationModels)
import Bespoke
import FoundationModels

/// A personal model for `LanguageModelSession`: the session of an app answers with what its user taught the model.
///
/// It has no tools and no guided generation; the framework refuses requests for them. It needs a bundle with a chat template.
@available(iOS 27, macOS 27, *)
public struct PersonalLanguageModel: LanguageModel {
    private let model: PersonalModel

    /// `model` stays open while sessions use it.
    public init(_ model: PersonalModel) {
        self.model = model
    }

    /// None of what a model may do over answering.
    public var capabilities: LanguageModelCapabilities { LanguageModelCapabilities([]) }

    /// The open model.
    public var executorConfiguration: Executor.Configuration { Executor.Configuration(model: model) }

    /// Answers requests of sessions. While a transcript only grows, its conversation is kept, and with it what the core computed of it.
    public struct Executor: LanguageModelExecutor {
        /// The model that answers. Two are equal where it is the same open model.
        public struct Configuration: Hashable, Sendable {
            let model: PersonalModel

            public static func == (one: Configuration, other: Configuration) -> Bool {
                one.model === other.model
            }

            public func hash(into hasher: inout Hasher) {
                hasher.combine(ObjectIdentifier(model))
            }
        }

        /// What it answers for.
        public typealias Model = PersonalLanguageModel

        private let answering: Answering

        /// Opens nothing: the model is open.
        public init(configuration: Configuration) {
            answering = Answering(model: configuration.model)
        }

        /// Streams the answer to the last prompt of the request's transcript.
        ///
        /// `LanguageModelError.contextSizeExceeded` where the transcript has no room in the context of the bundle, or the answer none in
        /// what is left. `samplingMode` is followed where it is `.greedy`; what else it says cannot be read, and counts as a temperature.
        public nonisolated(nonsending) func respond(
            to request: LanguageModelExecutorGenerationRequest, model: PersonalLanguageModel,
            streamingInto channel: LanguageModelExecutorGenerationChannel
        ) async throws {
            let messages = try request.transcript.messages()
            let id = request.id.uuidString
            do {
                try await answering.parts(messages, generation(request.generationOptions)) { part in
                    switch part {
                    case .read(let total, let known):
                        await channel.send(.response(entryID: id, action: usage(total, known, 0)))
                    case .text(let text, let tokens):
                        await channel.send(.response(entryID: id, action: .appendText(text, segmentID: nil, tokenCount: tokens)))
                    case .ended(let total, let known, let tokens):
                        await channel.send(.response(entryID: id, action: usage(total, known, tokens)))
                    }
                }
            } catch let full as ContextFull {
                throw LanguageModelError.contextSizeExceeded(
                    .init(
                        contextSize: full.contextSize, tokenCount: full.tokenCount,
                        debugDescription: "Begin a session with the last turns of this one.", metadata: [:]))
            }
        }
    }
}

@available(iOS 27, macOS 27, *)
private func usage(_ total: Int, _ known: Int, _ answered: Int) -> LanguageModelExecutorGenerationChannel.Response.Action {
    .updateUsage(
        input: .init(totalTokenCount: total, cachedTokenCount: known), output: .init(totalTokenCount: answered, reasoningTokenCount: 0))
}

/// Where a request says nothing, the temperature of a conversation.
private let usualTemperature = 0.7

@available(iOS 27, macOS 27, *)
private func generation(_ options: GenerationOptions) -> Generation {
    Generation(
        maxTokens: options.maximumResponseTokens.map { Int64($0) },
        temperature: options.samplingMode == .greedy ? 0 : options.temperature ?? usualTemperature)
}

@available(iOS 27, macOS 27, *)
extension Transcript {
    /// Its turns, as the bundle's chat template takes them.
    fileprivate func messages() throws -> [Example.Message] {
        try map { entry in
            switch entry {
            case .instructions(let instructions): Example.Message(role: .system, content: try text(of: instructions.segments))
            case .prompt(let prompt): Example.Message(role: .user, content: try text(of: prompt.segments))
            case .response(let response): Example.Message(role: .assistant, content: try text(of: response.segments))
            default: throw NotATurn(found: "\(entry)")
            }
        }
    }

    private func text(of segments: [Segment]) throws -> String {
        try segments.map { segment in
            guard case .text(let text) = segment else { throw NotATurn(found: "\(segment)") }
            return text.content
        }.joined(separator: "\n")
    }
}

/// A transcript holds what a personal model cannot read: a tool's output, an image, structured content.
public struct NotATurn: Error, CustomStringConvertible {
    /// What was found, for developers.
    public let found: String

    /// What was found, and what can be read.
    public var description: String { "a transcript: got \(found), expected instructions, prompts and responses of text" }
}
#endif
