// SPDX-License-Identifier: Apache-2.0
// A stand-in for Apple's framework on Linux, from the pages below developer.apple.com/documentation/coreml that stand above each
// declaration. Their numbers are those of coremltools' FeatureTypes.proto.
import Foundation

/// .../mlmultiarraydatatype, .../mlmultiarraydatatype/int8
public enum MLMultiArrayDataType: Int, Sendable {
    case float16 = 0x10010
    case float32 = 0x10020
    case double = 0x10040
    case int8 = 0x20008
    case int32 = 0x20020

    var size: Int { rawValue & 0xff / 8 }
}

/// .../mlmultiarray
public final class MLMultiArray: NSObject {
    public let shape: [NSNumber]
    public let dataType: MLMultiArrayDataType
    public let strides: [NSNumber]
    private let address: UnsafeMutableRawPointer
    private let deallocator: ((UnsafeMutableRawPointer) -> Void)?

    /// .../mlmultiarray/init(datapointer:shape:datatype:strides:deallocator:)
    public init(
        dataPointer: UnsafeMutableRawPointer, shape: [NSNumber], dataType: MLMultiArrayDataType, strides: [NSNumber],
        deallocator: ((UnsafeMutableRawPointer) -> Void)? = nil
    ) throws {
        guard !shape.isEmpty, shape.count == strides.count else {
            throw NSError(domain: "com.apple.CoreML", code: 0, userInfo: [NSLocalizedDescriptionKey: "shape \(shape), strides \(strides)"])
        }
        self.shape = shape
        self.dataType = dataType
        self.strides = strides
        address = dataPointer
        self.deallocator = deallocator
    }

    /// .../mlmultiarray/init(shape:datatype:)
    public convenience init(shape: [NSNumber], dataType: MLMultiArrayDataType) throws {
        var strides = Array(repeating: 1, count: shape.count)
        for place in shape.indices.dropLast().reversed() {
            strides[place] = strides[place + 1] * shape[place + 1].intValue
        }
        let count = shape.reduce(1) { $0 * $1.intValue }
        try self.init(
            dataPointer: .allocate(byteCount: count * dataType.size, alignment: 64), shape: shape, dataType: dataType,
            strides: strides.map { NSNumber(value: $0) }, deallocator: { $0.deallocate() })
    }

    deinit {
        deallocator?(address)
    }

    /// .../mlmultiarray/count
    public var count: Int { shape.reduce(1) { $0 * $1.intValue } }

    private var size: Int {
        let last = zip(shape, strides).reduce(0) { $0 + ($1.0.intValue - 1) * $1.1.intValue }
        return (last + 1) * dataType.size
    }

    /// .../mlmultiarray/withunsafebytes(_:)
    public func withUnsafeBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) rethrows -> R {
        try body(UnsafeRawBufferPointer(start: address, count: size))
    }

    /// .../mlmultiarray/withunsafemutablebytes(_:)
    public func withUnsafeMutableBytes<R>(_ body: (UnsafeMutableRawBufferPointer, [Int]) throws -> R) rethrows -> R {
        try body(UnsafeMutableRawBufferPointer(start: address, count: size), strides.map(\.intValue))
    }
}
