// SPDX-License-Identifier: Apache-2.0
import Foundation

@testable import Bespoke
@testable import CoreML

/// Computes what Core ML would: a spec of the small bundle by the interpreter, from the graph that it was made of. What its features mean
/// is what the spec says.
final class GraphRuntime: @unchecked Sendable {
    private let graphs: [Data: ExportedGraph]
    private let lock = NSLock()
    private var all: [Prediction] = []

    init() throws {
        var graphs: [Data: ExportedGraph] = [:]
        let exported = Small.bundle.appending(path: "graphs/exported")
        for spec in try GraphRuntime.specs() {
            let graph = exported.appending(path: spec.deletingPathExtension().lastPathComponent).appendingPathExtension("json")
            graphs[try Data(contentsOf: spec)] = try Data(contentsOf: graph).withUnsafeBytes { try ExportedGraph($0) }
        }
        self.graphs = graphs
    }

    static func specs() throws -> [URL] {
        try FileManager.default.contentsOfDirectory(at: Small.bundle.appending(path: "graphs/coreml"), includingPropertiesForKeys: nil)
    }

    /// What it was asked for.
    var predictions: [Prediction] { lock.withLock { all } }

    func compute(_ prediction: Prediction) throws -> [String: MLMultiArray] {
        lock.withLock { all.append(prediction) }
        let spec = prediction.spec
        let operands = try spec.inputs.map { feature in
            let meaning = try feature.meaning
            return prediction.inputs[feature.name]!.withUnsafeBytes { Numbers($0, meaning.isConverted ? meaning.asInt32 : meaning.type) }
        }
        let results = try graphs[spec.data]!.computed(operands)
        var made: [String: MLMultiArray] = [:]
        for (feature, result) in zip(spec.outputs, results) {
            let array = try prediction.backings[feature.name] ?? feature.newArray()
            let meaning = try feature.meaning
            try array.withUnsafeMutableBytes { bytes, _ in
                try result.write(to: bytes, meaning.isConverted ? .int32 : meaning.type.element)
            }
            made[feature.name] = array
        }
        return made
    }
}

extension Spec.Feature {
    /// The tensor of a feature, as the target describes it in the spec.
    struct Meaning: Decodable {
        let tensor: String
        let shape: [Int]
        let dtype: String
        let view: String

        var isConverted: Bool { view == "value" }

        var type: TensorType {
            let elements: [String: TensorType.Element] = [
                "float32": .float32, "float16": .float16, "uint8": .uint8, "int64": .int64, "int32": .int32,
            ]
            return TensorType(name: tensor, shape: shape, element: elements[dtype]!)
        }

        var asInt32: TensorType { TensorType(name: tensor, shape: shape, element: .int32) }
    }

    var meaning: Meaning {
        get throws { try JSONDecoder().decode(Meaning.self, from: Data(description.utf8)) }
    }

    func newArray() throws -> MLMultiArray {
        try MLMultiArray(shape: shape.map { NSNumber(value: $0) }, dataType: dataType)
    }
}
