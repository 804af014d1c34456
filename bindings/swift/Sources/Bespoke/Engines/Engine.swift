// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What runs the compiled graphs of one target. An app needs it only where it brings an engine of its own: give an ``EngineTable`` of it
/// to ``Options/engine``.
///
/// A model calls its engine from one thread at a time, though not always the same one. Models that share an engine may call it at once.
/// Every tensor is in memory of the process.
public protocol Engine: Sendable {
    /// The target whose artifacts it opens, "coreml" for instance; of an engine that runs exported graphs, its own name.
    var target: String { get }

    /// Whether it runs the exported programs that every bundle carries (torch.export's JSON), whatever the bundle's targets.
    var runsExportedGraphs: Bool { get }

    /// Opens one artifact. An engine compares the program's own operands and results with the artifact's, because nobody else can, and
    /// throws ``EngineError/otherSignature(_:)`` where they differ.
    func open(_ artifact: Artifact) throws -> any Program
}

extension Engine {
    /// False: it runs artifacts of its target.
    public var runsExportedGraphs: Bool { false }
}

/// An open artifact. It is let go of when its model no longer needs it.
public protocol Program {
    /// Computes the results from the operands, in the order of the artifact. When it returns, all results are written. Operands may be
    /// mapped read-only, and none overlaps a result. The buffers hold until it returns.
    func run(operands: [UnsafeRawBufferPointer], results: [UnsafeMutableRawBufferPointer]) throws
}

/// An engine that says what it takes outside the process's memory. It counts towards the limit of a model and in reports.
public protocol MemoryReportingEngine: Engine {
    /// The most bytes since the last call that the engine held outside the process's memory, on a graphics card for instance, or took and
    /// gave back within a run. It is asked after each run.
    func peakBytes() -> Int64
}

/// A compiled program, and what it must take and give.
public struct Artifact {
    /// The program. They are valid as long as what ``Engine/open(_:)`` returns.
    public let bytes: UnsafeRawBufferPointer

    /// Memory for what the program needs during a run, as much as its target asked for, aligned to 64 bytes. It is valid as long as what
    /// ``Engine/open(_:)`` returns. All programs share it, so its contents are lost between two runs.
    public let workspace: UnsafeMutableRawBufferPointer

    /// What the program takes, in its order.
    public let operands: [TensorType]

    /// What the program gives, in its order.
    public let results: [TensorType]

    /// ``Options/cache``, for what the engine makes of artifacts and wants to find again.
    public let cache: URL?
}

/// A dense tensor in row-major order.
public struct TensorType: Hashable, Sendable {
    /// Types of elements.
    public enum Element: Int32, Sendable {
        case float32 = 0
        case float16 = 1
        case uint8 = 2
        case int64 = 3
        case int32 = 4

        /// Bytes of one element.
        public var size: Int {
            switch self {
            case .float32, .int32: 4
            case .float16: 2
            case .uint8: 1
            case .int64: 8
            }
        }
    }

    /// What the graph calls it.
    public let name: String

    /// Its sizes; none of a scalar.
    public let shape: [Int]

    /// The type of its elements.
    public let element: Element

    public init(name: String, shape: [Int], element: Element) {
        self.name = name
        self.shape = shape
        self.element = element
    }

    /// How many elements it has.
    public var count: Int { shape.reduce(1, *) }

    /// How many bytes it takes.
    public var byteCount: Int { count * element.size }
}

/// Why an engine cannot open or run a program. Every other error that it throws counts as ``failed(_:)``.
public enum EngineError: Error, Hashable, Sendable {
    /// The program is to blame: ``BespokeError/Kind/bundleError`` where it does not open, ``BespokeError/Kind/planError`` where it does
    /// not run.
    case failed(String)

    /// The system gave no memory: training ends as where a budget is exceeded.
    case noMemory(String)

    /// The program takes or gives other tensors than its artifact; the text says which: ``BespokeError/Kind/bundleError``.
    case otherSignature(String)

    /// There is no room for what the engine makes of the artifact: ``BespokeError/Kind/diskFull``.
    case diskFull(String)

    /// A library that the program needs is not there: ``BespokeError/Kind/missingDependency``.
    case missingDependency(String)

    /// The device lacks something else that the program needs: ``BespokeError/Kind/unavailable``.
    case unavailable(String)
}
