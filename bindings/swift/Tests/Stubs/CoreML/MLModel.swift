// SPDX-License-Identifier: Apache-2.0
import Foundation

/// .../mlcomputeunits
public enum MLComputeUnits: Int, Sendable {
    case cpuOnly = 0
    case cpuAndGPU = 1
    case all = 2
    case cpuAndNeuralEngine = 3
}

/// .../mlmodelconfiguration
public final class MLModelConfiguration: NSObject {
    /// .../mlmodelconfiguration/computeunits
    public var computeUnits = MLComputeUnits.all
}

/// .../mlpredictionoptions
public final class MLPredictionOptions: NSObject {
    /// .../mlpredictionoptions/outputbackings
    public var outputBackings: [String: Any] = [:]
}

/// .../mlmodelasset
public final class MLModelAsset: NSObject {
    let spec: Spec

    /// .../mlmodelasset/init(specification:)
    public init(specification specificationData: Data) throws {
        spec = try Spec(specificationData)
    }
}

/// .../mlmodel
public final class MLModel: NSObject {
    /// .../mlmodel/modeldescription
    public let modelDescription: MLModelDescription

    private let spec: Spec
    private let computeUnits: MLComputeUnits

    private init(_ spec: Spec, _ computeUnits: MLComputeUnits) {
        self.spec = spec
        self.computeUnits = computeUnits
        modelDescription = MLModelDescription(spec)
    }

    /// .../mlmodel/load(_:configuration:completionhandler:)
    public class func load(
        _ asset: MLModelAsset, configuration: MLModelConfiguration,
        completionHandler handler: @escaping @Sendable (MLModel?, (any Error)?) -> Void
    ) {
        let (spec, computeUnits) = (asset.spec, configuration.computeUnits)
        DispatchQueue.global().async {
            handler(MLModel(spec, computeUnits), nil)
        }
    }

    /// .../mlmodel/prediction(from:options:)-81mr6. Inputs that are not as the spec describes them are refused.
    public func prediction(from input: any MLFeatureProvider, options: MLPredictionOptions) throws -> any MLFeatureProvider {
        var inputs: [String: MLMultiArray] = [:]
        for feature in spec.inputs {
            guard let array = input.featureValue(for: feature.name)?.multiArrayValue, array.shape.map(\.intValue) == feature.shape,
                array.dataType == feature.dataType
            else {
                throw NSError(domain: "com.apple.CoreML", code: 1, userInfo: [NSLocalizedDescriptionKey: "input \(feature.name)"])
            }
            inputs[feature.name] = array
        }
        let backings = options.outputBackings.mapValues { $0 as! MLMultiArray }
        let prediction = Prediction(spec: spec, computeUnits: computeUnits, inputs: inputs, backings: backings)
        return try MLDictionaryFeatureProvider(dictionary: Runtime.shared.compute(prediction).mapValues { MLFeatureValue(multiArray: $0) })
    }
}
