// SPDX-License-Identifier: Apache-2.0
#if canImport(CoreML)
import Bespoke
import CoreML
import Foundation

/// Runs bundles of the target `coreml` with Core ML.
///
/// It was compiled and tested on Linux against stubs made from Apple's documentation. Nobody has run it on Apple's runtime.
@available(iOS 18, macOS 15, *)
public struct CoreMLEngine: Engine {
    /// "coreml": bundles that were built for it.
    public let target = "coreml"

    private let computeUnits: MLComputeUnits

    /// `computeUnits`: what may compute. Specs of fp32, the target's default, need the processor alone. So does an app in the background,
    /// to which iOS refuses the GPU.
    public init(computeUnits: MLComputeUnits = .cpuOnly) {
        self.computeUnits = computeUnits
    }

    /// Compiles and loads a spec and compares its features with the artifact's tensors.
    public func open(_ artifact: Artifact) throws -> any Program {
        let asset = try MLModelAsset(specification: Data(artifact.bytes))  // a few kB, which Core ML may keep for longer than the core
        let configuration = MLModelConfiguration()
        configuration.computeUnits = computeUnits
        let model = try loaded(asset, configuration)
        let description = model.modelDescription
        return CoreMLProgram(
            model,
            operands: try features("x", artifact.operands, description.inputDescriptionsByName),
            results: try features("y", artifact.results, description.outputDescriptionsByName))
    }
}

/// The model of an asset. It waits, since the core has called from a thread of its own.
@available(iOS 18, macOS 15, *)
private func loaded(_ asset: MLModelAsset, _ configuration: MLModelConfiguration) throws -> MLModel {
    let loading = Loading()
    MLModel.load(asset, configuration: configuration) { model, error in
        loading.ended(model, error)
    }
    return try loading.model()
}

private final class Loading: @unchecked Sendable {  // the semaphore orders its fields
    private let isOver = DispatchSemaphore(value: 0)
    private var loaded: MLModel?
    private var error: (any Error)?

    func ended(_ model: MLModel?, _ error: (any Error)?) {
        (loaded, self.error) = (model, error)
        isOver.signal()
    }

    func model() throws -> MLModel {
        isOver.wait()
        guard let loaded else { throw error ?? EngineError.failed("Core ML gave neither a model nor an error") }
        return loaded
    }
}

/// The features of an artifact's tensors: operand i is `x<i>`, result i is `y<i>`.
@available(iOS 18, macOS 15, *)
private func features(_ prefix: String, _ tensors: [TensorType], _ described: [String: MLFeatureDescription]) throws -> [Feature] {
    guard described.count == tensors.count else {
        throw EngineError.otherSignature("\(described.count) features \(prefix)<i> for \(tensors.count) tensors")
    }
    return try tensors.enumerated().map { number, tensor in
        let name = "\(prefix)\(number)"
        guard let array = described[name]?.multiArrayConstraint,
            let feature = Feature(name, tensor, array.shape.map(\.intValue), array.dataType)
        else {
            throw EngineError.otherSignature("feature \(name) is no form of \(tensor.name), \(tensor.element) \(tensor.shape)")
        }
        return feature
    }
}
#endif
