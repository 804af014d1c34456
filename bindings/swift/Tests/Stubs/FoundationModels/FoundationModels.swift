// SPDX-License-Identifier: Apache-2.0
// A stand-in for Apple's framework on Linux: those signatures of developer.apple.com/documentation/foundationmodels that a language model
// of an app implements and calls, as of iOS 27.
import Foundation

public protocol LanguageModel: Sendable {
    associatedtype Executor: LanguageModelExecutor where Executor.Model == Self
    var capabilities: LanguageModelCapabilities { get }
    var executorConfiguration: Executor.Configuration { get }
}

public protocol LanguageModelExecutor: Sendable {
    associatedtype Configuration: Hashable, Sendable
    associatedtype Model: LanguageModel
    init(configuration: Configuration) throws
    func prewarm(model: Model, transcript: Transcript)
    nonisolated(nonsending) func respond(
        to request: LanguageModelExecutorGenerationRequest, model: Model, streamingInto channel: LanguageModelExecutorGenerationChannel
    ) async throws
}

extension LanguageModelExecutor {
    public func prewarm(model: Model, transcript: Transcript) {}
}

public struct LanguageModelCapabilities: Sendable {
    public struct Capability: Hashable, Sendable {
        let name: String
        public static var guidedGeneration: Capability { Capability(name: "guidedGeneration") }
        public static var reasoning: Capability { Capability(name: "reasoning") }
        public static var toolCalling: Capability { Capability(name: "toolCalling") }
    }

    private let all: Set<Capability>

    public init(_ capabilities: [Capability]) {
        all = Set(capabilities)
    }

    public func contains(_ capability: Capability) -> Bool { all.contains(capability) }
}

public struct GenerationOptions: Sendable, Equatable {
    public struct SamplingMode: Sendable, Equatable {
        let name: String
        public static var greedy: SamplingMode { SamplingMode(name: "greedy") }
        public static func random(top k: Int, seed: UInt64? = nil) -> SamplingMode {
            SamplingMode(name: "top \(k) \(seed.map(String.init) ?? "")")
        }
        public static func random(probabilityThreshold: Double, seed: UInt64? = nil) -> SamplingMode {
            SamplingMode(name: "threshold \(probabilityThreshold) \(seed.map(String.init) ?? "")")
        }
    }

    public var samplingMode: SamplingMode?
    public var temperature: Double?
    public var maximumResponseTokens: Int?

    public init(samplingMode: SamplingMode? = nil, temperature: Double? = nil, maximumResponseTokens: Int? = nil) {
        self.samplingMode = samplingMode
        self.temperature = temperature
        self.maximumResponseTokens = maximumResponseTokens
    }
}

public struct LanguageModelExecutorGenerationRequest: Sendable {
    public var id: UUID
    public var transcript: Transcript
    public var generationOptions: GenerationOptions
}

public enum LanguageModelError: Error {
    public struct ContextSizeExceeded: Sendable {
        public var contextSize: Int
        public var tokenCount: Int
        public var debugDescription: String
        public var metadata: [String: any Sendable]

        public init(contextSize: Int, tokenCount: Int, debugDescription: String, metadata: [String: any Sendable] = [:]) {
            self.contextSize = contextSize
            self.tokenCount = tokenCount
            self.debugDescription = debugDescription
            self.metadata = metadata
        }
    }

    case contextSizeExceeded(ContextSizeExceeded)
}
