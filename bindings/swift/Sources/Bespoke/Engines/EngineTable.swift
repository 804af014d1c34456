// SPDX-License-Identifier: Apache-2.0
package import CBespoke
import Foundation

/// An engine as the device core calls it: through the C table of bespoke_engine.h.
public struct EngineTable: Sendable {
    /// A new table, with a context of its own.
    private let make: @Sendable () throws -> bespoke_engine

    /// A table that calls an engine written in Swift.
    public init(_ engine: some Engine) {
        make = { swiftTable(engine) }
    }

    /// A table that an engine in C or C++ fills for each model. It throws an ``EngineError`` where the engine cannot be had.
    package init(_ make: @escaping @Sendable () throws -> bespoke_engine) {
        self.make = make
    }

    /// Calls `open` with a table, which the core copies. Where it succeeds the core owns the table's context, else that is destroyed here.
    func opening<Result>(_ open: (UnsafePointer<bespoke_engine>) throws -> Result) throws -> Result {
        var table = try made()
        do {
            return try open(&table)
        } catch {
            table.destroy?(table.context)
            throw error
        }
    }

    private func made() throws -> bespoke_engine {
        do {
            return try make()
        } catch let error as EngineError {
            throw BespokeError(
                kind: .unavailable, subject: "the engine", got: error.text, expected: "an engine that runs here",
                nextStep: "Open the model with another engine.")
        }
    }
}

/// The engine of one model, with its name as C reads it.
private final class Context {
    let engine: any Engine
    let target: UnsafeMutablePointer<CChar>

    init(_ engine: any Engine) {
        self.engine = engine
        target = engine.target.withCString { strdup($0)! }
    }

    deinit {
        free(target)
    }

    func peakBytes() -> Int64 { (engine as! any MemoryReportingEngine).peakBytes() }

    static func at(_ address: UnsafeMutableRawPointer?) -> Context {
        Unmanaged<Context>.fromOpaque(address!).takeUnretainedValue()
    }
}

/// A program, and how many bytes each of its tensors takes, so that a run looks at no shape.
private final class OpenProgram {
    let program: any Program
    let operandSizes, resultSizes: [Int]

    init(_ program: any Program, _ artifact: Artifact) {
        self.program = program
        operandSizes = artifact.operands.map(\.byteCount)
        resultSizes = artifact.results.map(\.byteCount)
    }

    func run(_ operands: Tensors, _ results: Tensors) throws {
        let operands = operandSizes.enumerated().map { UnsafeRawBufferPointer(start: operands![$0]!.pointee.data, count: $1) }
        let results = resultSizes.enumerated().map { UnsafeMutableRawBufferPointer(start: results![$0]!.pointee.data, count: $1) }
        try program.run(operands: operands, results: results)
    }
}

private func swiftTable(_ engine: some Engine) -> bespoke_engine {
    let context = Context(engine)
    return bespoke_engine(
        struct_size: MemoryLayout<bespoke_engine>.size,
        target: context.target,
        context: Unmanaged.passRetained(context).toOpaque(),
        open: { context, artifact, program, message, size in
            status(message, size) {
                let artifact = try Artifact(artifact.pointee)
                let open = OpenProgram(try Context.at(context).engine.open(artifact), artifact)
                program.pointee = Unmanaged.passRetained(open).toOpaque()
            }
        },
        run: { _, program, operands, _, results, _, message, size in
            status(message, size) {
                try Unmanaged<OpenProgram>.fromOpaque(program!).takeUnretainedValue().run(operands, results)
            }
        },
        close: { _, program in Unmanaged<OpenProgram>.fromOpaque(program!).release() },
        destroy: { Unmanaged<Context>.fromOpaque($0!).release() },
        finish: nil, allocate: nil, release: nil, read: nil, write: nil, map_weights: nil, unmap_weights: nil,
        peak_bytes: engine is any MemoryReportingEngine ? { Context.at($0).peakBytes() } : nil,
        runs_graphs: engine.runsExportedGraphs ? 1 : 0,
        parallel: nil,
        use_threads: nil)
}

/// Runs `body`; 0, or the number of what it threw, with the reason in `message`. Objects of Apple's frameworks that it lets go of are
/// freed when it ends, because a thread of the core may run thousands of graphs before it ends itself.
private func status(_ message: UnsafeMutablePointer<CChar>, _ size: Int, _ body: () throws -> Void) -> Int32 {
    do {
        #if canImport(ObjectiveC)
        try autoreleasepool(invoking: body)
        #else
        try body()
        #endif
        return 0
    } catch {
        let failure = error as? EngineError ?? .failed("\(error)")
        write(failure.text, to: message, size)
        return failure.code
    }
}

/// Writes what fits of a text, and no part of a character.
private func write(_ text: String, to message: UnsafeMutablePointer<CChar>, _ size: Int) {
    guard size > 0 else { return }
    var end = 0
    for character in text.unicodeScalars {
        let bytes = UTF8.encode(character)!
        guard end + bytes.count < size else { break }
        for byte in bytes {
            message[end] = CChar(bitPattern: byte)
            end += 1
        }
    }
    message[end] = 0
}

extension EngineError {
    var text: String {
        switch self {
        case .failed(let text), .noMemory(let text), .otherSignature(let text), .diskFull(let text), .missingDependency(let text),
            .unavailable(let text):
            text
        }
    }

    fileprivate var code: Int32 {
        switch self {
        case .failed: 1
        case .noMemory: BESPOKE_ENGINE_NO_MEMORY
        case .otherSignature: BESPOKE_ENGINE_OTHER_SIGNATURE
        case .diskFull: BESPOKE_ENGINE_DISK_FULL
        case .missingDependency: BESPOKE_ENGINE_MISSING_DEPENDENCY
        case .unavailable: BESPOKE_ENGINE_UNAVAILABLE
        }
    }
}

private typealias Tensors = UnsafePointer<UnsafePointer<bespoke_tensor>?>?

extension Artifact {
    fileprivate init(_ artifact: bespoke_artifact) throws {
        bytes = UnsafeRawBufferPointer(start: artifact.bytes, count: Int(artifact.size))
        workspace = UnsafeMutableRawBufferPointer(start: artifact.workspace, count: artifact.workspace_bytes)
        operands = try (0..<artifact.operand_count).map { try TensorType(artifact.operands![$0]!.pointee) }
        results = try (0..<artifact.result_count).map { try TensorType(artifact.results![$0]!.pointee) }
        cache = artifact.cache.map { URL(fileURLWithPath: String(cString: $0), isDirectory: true) }
    }
}

extension TensorType {
    /// A later core may know more types.
    fileprivate init(_ tensor: bespoke_tensor) throws {
        name = String(cString: tensor.name)
        shape = (0..<Int(tensor.rank)).map { Int(tensor.shape[$0]) }
        guard let known = Element(rawValue: tensor.dtype.rawValue) else {
            throw EngineError.failed("\(name): element type \(tensor.dtype.rawValue)")
        }
        element = known
    }
}
