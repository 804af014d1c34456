// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What stands about its features in an .mlmodel file: the protobuf of coremltools' Model.proto and FeatureTypes.proto, of which the
/// program itself is not read.
public struct Spec: Sendable {
    public struct Feature: Sendable {
        public let name: String

        /// What the author of the spec wrote about it.
        public let description: String
        public let shape: [Int]
        public let dataType: MLMultiArrayDataType
    }

    public let data: Data
    public let inputs, outputs: [Feature]

    init(_ data: Data) throws {
        self.data = data
        let description = try Message(data).message(2)
        inputs = try description.messages(1).map(Feature.init)
        outputs = try description.messages(10).map(Feature.init)
    }
}

extension Spec.Feature {
    fileprivate init(_ feature: Message) throws {
        let array = try feature.message(3).message(5)
        guard let type = MLMultiArrayDataType(rawValue: Int(try array.number(2))) else { throw Message.Damaged() }
        name = String(decoding: try feature.bytes(1), as: UTF8.self)
        description = String(decoding: try feature.bytes(2), as: UTF8.self)
        shape = try Message.numbers(try array.bytes(1)).map { Int($0) }
        dataType = type
    }
}

/// A message of protobuf: fields of a number (wire type 0) and of bytes (2).
private struct Message {
    struct Damaged: Error {}

    private var numbers: [UInt64: UInt64] = [:]
    private var byteFields: [UInt64: [Data]] = [:]

    init(_ data: Data) throws {
        var rest = data[...]
        while !rest.isEmpty {
            let key = try Message.number(&rest)
            switch key & 7 {
            case 0:
                numbers[key >> 3] = try Message.number(&rest)
            case 2:
                let size = Int(try Message.number(&rest))
                guard size <= rest.count else { throw Damaged() }
                byteFields[key >> 3, default: []].append(Data(rest.prefix(size)))
                rest = rest.dropFirst(size)
            default:
                throw Damaged()
            }
        }
    }

    func number(_ field: UInt64) throws -> UInt64 {
        guard let number = numbers[field] else { throw Damaged() }
        return number
    }

    func bytes(_ field: UInt64) throws -> Data {
        guard let bytes = byteFields[field]?.last else { throw Damaged() }
        return bytes
    }

    func message(_ field: UInt64) throws -> Message { try Message(try bytes(field)) }

    func messages(_ field: UInt64) throws -> [Message] { try (byteFields[field] ?? []).map(Message.init) }

    /// Packed numbers.
    static func numbers(_ data: Data) throws -> [UInt64] {
        var (rest, found) = (data[...], [UInt64]())
        while !rest.isEmpty {
            found.append(try number(&rest))
        }
        return found
    }

    private static func number(_ rest: inout Data) throws -> UInt64 {
        var (number, shift): (UInt64, UInt64) = (0, 0)
        while let byte = rest.popFirst(), shift < 64 {
            number |= UInt64(byte & 127) << shift
            if byte < 128 { return number }
            shift += 7
        }
        throw Damaged()
    }
}
