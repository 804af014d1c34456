// SPDX-License-Identifier: Apache-2.0
import Foundation

/// By what an app knows its bundle. A bundle is code: what is in it runs with the app's rights.
public struct Trust: Sendable {
    /// The sha256 of manifest.json, in hexadecimal.
    public var pinSha256: String?

    /// An ed25519 key of 32 bytes: the bundle's signature must be of it.
    public var publicKey: Data?

    /// Refuse to open without either. By default a bundle without them opens, and ``PersonalModel/authenticated`` says "none".
    public var requireAuthenticated: Bool

    public init(pinSha256: String? = nil, publicKey: Data? = nil, requireAuthenticated: Bool = false) {
        self.pinSha256 = pinSha256
        self.publicKey = publicKey
        self.requireAuthenticated = requireAuthenticated
    }
}

/// How a model is opened.
public struct Options: Sendable {
    /// By what its bundle is known.
    public var trust: Trust

    /// What a call may add to what the process held when it began, in MB of 10^6 bytes; nil: the bundle's budget. So what the app itself
    /// takes meanwhile does not count. Reports say both.
    public var memoryMb: Double?

    /// Nil: as many as there are processors.
    public var threads: Int?

    /// A folder of the app's that an engine may fill and the system may empty.
    public var cache: URL?

    /// What runs the bundle's graphs; nil: ExecuTorch, where the core was built with it.
    public var engine: EngineTable?

    /// How long a call that computes waits for its turn before it is ``BespokeError/Kind/busy``, in seconds; nil: however long it takes.
    public var waitSeconds: Double?

    /// How long a call waits for another process that uses the state before it is ``BespokeError/Kind/unavailable``, in seconds; nil:
    /// however long it takes.
    public var busySeconds: Double?

    public init(
        trust: Trust = Trust(), memoryMb: Double? = nil, threads: Int? = nil, cache: URL? = nil, engine: EngineTable? = nil,
        waitSeconds: Double? = 0, busySeconds: Double? = 30
    ) {
        self.trust = trust
        self.memoryMb = memoryMb
        self.threads = threads
        self.cache = cache
        self.engine = engine
        self.waitSeconds = waitSeconds
        self.busySeconds = busySeconds
    }

    var waits: Waits { Waits(turn: waitSeconds ?? -1, otherProcess: busySeconds ?? -1) }
}

/// What a call of ``PersonalModel/train(_:onProgress:)`` does.
public struct Training: Sendable {
    /// Nil: that of the unfinished run, else the bundle's first.
    public var method: String?

    /// Length of a run that starts here; nil: the bundle's. An unfinished run refuses another one than its own.
    public var runSteps: Int64?

    /// Of this call, and the run goes on in the next one; nil: to the end of the run.
    public var mostSteps: Int64?

    /// Time for this call, its commits and judgement included; nil: none.
    public var seconds: Double?

    /// Of a run that starts here.
    public var seed: Int64?

    /// Of a run that starts here: fields of Training but `steps`, docs/reference/settings.md.
    public var settings: [String: JSONValue]?

    /// An unfinished run ends, and another one starts.
    public var newRun: Bool

    public init(
        method: String? = nil, runSteps: Int64? = nil, mostSteps: Int64? = nil, seconds: Double? = nil, seed: Int64? = nil,
        settings: [String: JSONValue]? = nil, newRun: Bool = false
    ) {
        self.method = method
        self.runSteps = runSteps
        self.mostSteps = mostSteps
        self.seconds = seconds
        self.seed = seed
        self.settings = settings
        self.newRun = newRun
    }
}

/// How an answer is made.
public struct Generation: Hashable, Sendable {
    /// Of one answer; nil: as many as the bundle's context has room for.
    public var maxTokens: Int64?

    /// 0 takes the likeliest token.
    public var temperature: Double

    /// Of the likeliest tokens those that hold this share together; nil: all.
    public var topP: Double?

    /// So many of the likeliest tokens; nil: all.
    public var topK: Int64?

    /// Same seed, same answer.
    public var seed: UInt64

    /// Texts that end an answer and are no part of it.
    public var stopTexts: [String]

    /// Whether each question is asked with the notes among the user's examples that are nearest to it.
    public var notes: Bool

    public init(
        maxTokens: Int64? = nil, temperature: Double = 0, topP: Double? = nil, topK: Int64? = nil, seed: UInt64 = 0,
        stopTexts: [String] = [], notes: Bool = false
    ) {
        self.maxTokens = maxTokens
        self.temperature = temperature
        self.topP = topP
        self.topK = topK
        self.seed = seed
        self.stopTexts = stopTexts
        self.notes = notes
    }
}

/// Formats of an exported adapter.
public enum AdapterFormat: String, Sendable {
    /// A folder for Hugging Face's peft.
    case peft

    /// A folder for mlx-lm.
    case mlx

    /// A file for llama.cpp.
    case gguf
}
