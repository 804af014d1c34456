// SPDX-License-Identifier: Apache-2.0
#if canImport(CoreML)
import Bespoke
import CoreML
import Foundation

/// A tensor as a spec of the target `coreml` takes or gives it.
///
/// Core ML's arrays have at least one dimension, so a scalar has the shape [1]. Packed codes (uint8) are seen as int32 or int8, in the same
/// memory. An int64 tensor crosses as int32, element by element; it is the only one that is copied.
@available(iOS 18, macOS 15, *)
struct Feature {
    /// The largest integer that crosses: two of them add up within int32.
    static let largest: Int64 = 1 << 30

    let name: String
    let tensor: TensorType
    let isConverted: Bool
    private let shape: [NSNumber]
    private let strides: [NSNumber]
    private let dataType: MLMultiArrayDataType

    /// Nil where a feature of this shape and type is no form of the tensor.
    init?(_ name: String, _ tensor: TensorType, _ shape: [Int], _ dataType: MLMultiArrayDataType) {
        var expected = tensor.shape.isEmpty ? [1] : tensor.shape
        switch (tensor.element, dataType) {
        case (.float32, .float32), (.float16, .float16), (.int32, .int32), (.int64, .int32):
            break
        case (.uint8, .int32):
            guard expected[expected.count - 1] % 4 == 0 else { return nil }
            expected[expected.count - 1] /= 4
        case (.uint8, _):
            guard #available(iOS 26, macOS 26, *), dataType == .int8 else { return nil }
        default:
            return nil
        }
        guard shape == expected else { return nil }
        self.name = name
        self.tensor = tensor
        self.dataType = dataType
        self.shape = shape.map { NSNumber(value: $0) }
        isConverted = tensor.element == .int64
        var strides = Array(repeating: 1, count: shape.count)
        for place in shape.indices.dropLast().reversed() {
            strides[place] = strides[place + 1] * shape[place + 1]
        }
        self.strides = strides.map { NSNumber(value: $0) }
    }

    /// The array of an operand. Core ML writes to no input, so it may lie in memory that is mapped read-only.
    func array(of operand: UnsafeRawBufferPointer) throws -> MLMultiArray {
        isConverted ? try converted(operand) : try array(at: UnsafeMutableRawPointer(mutating: operand.baseAddress!))
    }

    /// An array whose elements are in the memory of a tensor.
    func array(at address: UnsafeMutableRawPointer) throws -> MLMultiArray {
        try MLMultiArray(dataPointer: address, shape: shape, dataType: dataType, strides: strides)
    }

    /// Writes an array that Core ML has made to the memory of a result.
    func copy(_ array: MLMultiArray, to result: UnsafeMutableRawBufferPointer) throws {
        guard array.shape == shape, array.dataType == dataType else {
            throw EngineError.otherSignature("result \(name) is \(array.shape), \(tensor.name) is \(tensor.shape)")
        }
        let (sizes, elementSize) = (shape.map(\.intValue), tensor.byteCount / max(1, tensor.count))
        array.withUnsafeMutableBytes { bytes, strides in
            var index = Array(repeating: 0, count: sizes.count)
            for number in 0..<array.count {
                let place = zip(index, strides).reduce(0) { $0 + $1.0 * $1.1 }
                if isConverted {
                    let element = bytes.loadUnaligned(fromByteOffset: place * 4, as: Int32.self)
                    result.storeBytes(of: Int64(element), toByteOffset: number * elementSize, as: Int64.self)
                } else {
                    let element = UnsafeRawBufferPointer(rebasing: bytes[place * elementSize..<(place + 1) * elementSize])
                    UnsafeMutableRawBufferPointer(rebasing: result[(number * elementSize)...]).copyMemory(from: element)
                }
                for dimension in sizes.indices.reversed() {
                    index[dimension] += 1
                    guard index[dimension] == sizes[dimension] else { break }
                    index[dimension] = 0
                }
            }
        }
    }

    /// An int32 array of an int64 tensor. A scalar beyond the largest integer becomes that one, which turns a window that sees everything
    /// into one that is longer than any context. No other tensor may have such an element.
    private func converted(_ operand: UnsafeRawBufferPointer) throws -> MLMultiArray {
        let array = try MLMultiArray(shape: shape, dataType: .int32)
        try array.withUnsafeMutableBytes { bytes, _ in  // what was just made is dense
            for number in 0..<tensor.count {
                let given = operand.loadUnaligned(fromByteOffset: number * 8, as: Int64.self)
                let fitting = min(max(given, -Feature.largest), Feature.largest)
                guard fitting == given || tensor.shape.isEmpty else {
                    throw EngineError.failed("\(tensor.name) has the integer \(given), and Core ML's int32 can add those up to 2^30")
                }
                bytes.storeBytes(of: Int32(fitting), toByteOffset: number * 4, as: Int32.self)
            }
        }
        return array
    }
}
#endif
