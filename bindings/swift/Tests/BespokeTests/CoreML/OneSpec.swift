// SPDX-License-Identifier: Apache-2.0
import Foundation

@testable import Bespoke
@testable import CoreML

/// One spec of the small bundle, with memory for its tensors as the core gives it.
final class OneSpec {
    let spec: Spec
    var operandTypes, resultTypes: [TensorType]
    let operands, results: [UnsafeMutableRawBufferPointer]

    /// The first spec of a graph.
    init(_ graph: String) throws {
        let file = try GraphRuntime.specs().filter { $0.lastPathComponent.hasPrefix(graph) }.min { $0.path < $1.path }
        spec = try Spec(Data(contentsOf: file!))
        operandTypes = try spec.inputs.map { try $0.meaning.type }
        resultTypes = try spec.outputs.map { try $0.meaning.type }
        operands = operandTypes.map { OneSpec.memory($0) }
        results = resultTypes.map { OneSpec.memory($0) }
    }

    deinit {
        for memory in operands + results {
            memory.deallocate()
        }
    }

    func open(_ engine: some Engine) throws -> any Program {
        try spec.data.withUnsafeBytes { bytes in
            let workspace = UnsafeMutableRawBufferPointer(start: nil, count: 0)
            return try engine.open(
                Artifact(bytes: bytes, workspace: workspace, operands: operandTypes, results: resultTypes, cache: nil))
        }
    }

    func run(_ program: any Program) throws {
        try program.run(operands: operands.map { UnsafeRawBufferPointer($0) }, results: results)
    }

    /// Memory of ones, in the type of the tensor.
    private static func memory(_ type: TensorType) -> UnsafeMutableRawBufferPointer {
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: type.byteCount, alignment: 64)
        for place in stride(from: 0, to: type.byteCount, by: type.element.size) {
            switch type.element {
            case .float32: memory.storeBytes(of: 1, toByteOffset: place, as: Float.self)
            case .float16: memory.storeBytes(of: 1, toByteOffset: place, as: Float16.self)
            case .uint8: memory.storeBytes(of: 1, toByteOffset: place, as: UInt8.self)
            case .int64: memory.storeBytes(of: 1, toByteOffset: place, as: Int64.self)
            case .int32: memory.storeBytes(of: 1, toByteOffset: place, as: Int32.self)
            }
        }
        return memory
    }
}

extension MLMultiArray {
    /// Where its first element is.
    var address: UnsafeRawPointer? { withUnsafeBytes { $0.baseAddress } }
}
