// SPDX-License-Identifier: Apache-2.0
#if canImport(CoreML)
import Bespoke
import CoreML

/// A loaded spec. Its arrays lie over the tensors' own memory, so Core ML reads operands and writes results where they are.
@available(iOS 18, macOS 15, *)
final class CoreMLProgram: Program {
    private let model: MLModel
    private let operands, results: [Feature]

    init(_ model: MLModel, operands: [Feature], results: [Feature]) {
        self.model = model
        self.operands = operands
        self.results = results
    }

    func run(operands given: [UnsafeRawBufferPointer], results places: [UnsafeMutableRawBufferPointer]) throws {
        var inputs: [String: Any] = [:]
        for (feature, operand) in zip(operands, given) {
            inputs[feature.name] = MLFeatureValue(multiArray: try feature.array(of: operand))
        }
        var backings: [String: MLMultiArray] = [:]
        for (feature, place) in zip(results, places) where !feature.isConverted {
            backings[feature.name] = try feature.array(at: place.baseAddress!)
        }
        let options = MLPredictionOptions()
        options.outputBackings = backings
        let made = try model.prediction(from: MLDictionaryFeatureProvider(dictionary: inputs), options: options)
        for (feature, place) in zip(results, places) {
            guard let array = made.featureValue(for: feature.name)?.multiArrayValue else {
                throw EngineError.otherSignature("no result \(feature.name)")
            }
            // Core ML need not use what it is given.
            if array !== backings[feature.name] {
                try feature.copy(array, to: place)
            }
        }
    }
}
#endif
