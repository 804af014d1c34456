// SPDX-License-Identifier: Apache-2.0
import Foundation

/// .../mlfeaturevalue
public final class MLFeatureValue: NSObject {
    /// .../mlfeaturevalue/multiarrayvalue
    public let multiArrayValue: MLMultiArray?

    /// .../mlfeaturevalue/init(multiarray:)
    public init(multiArray value: MLMultiArray) {
        multiArrayValue = value
    }
}

/// .../mlfeatureprovider
public protocol MLFeatureProvider {
    /// .../mlfeatureprovider/featurenames
    var featureNames: Set<String> { get }

    /// .../mlfeatureprovider/featurevalue(for:)
    func featureValue(for featureName: String) -> MLFeatureValue?
}

/// .../mldictionaryfeatureprovider
public final class MLDictionaryFeatureProvider: NSObject, MLFeatureProvider {
    private let values: [String: MLFeatureValue]

    /// .../mldictionaryfeatureprovider/init(dictionary:)
    public init(dictionary: [String: Any]) throws {
        values = dictionary.mapValues { $0 as! MLFeatureValue }
    }

    public var featureNames: Set<String> { Set(values.keys) }

    public func featureValue(for featureName: String) -> MLFeatureValue? { values[featureName] }
}

/// .../mlmultiarrayconstraint
public final class MLMultiArrayConstraint: NSObject {
    /// .../mlmultiarrayconstraint/shape
    public let shape: [NSNumber]

    /// .../mlmultiarrayconstraint/datatype
    public let dataType: MLMultiArrayDataType

    init(shape: [NSNumber], dataType: MLMultiArrayDataType) {
        self.shape = shape
        self.dataType = dataType
    }
}

/// .../mlfeaturedescription
public final class MLFeatureDescription: NSObject {
    /// .../mlfeaturedescription/multiarrayconstraint
    public let multiArrayConstraint: MLMultiArrayConstraint?

    init(_ feature: Spec.Feature) {
        multiArrayConstraint = MLMultiArrayConstraint(shape: feature.shape.map { NSNumber(value: $0) }, dataType: feature.dataType)
    }
}

/// .../mlmodeldescription
public final class MLModelDescription: NSObject {
    /// .../mlmodeldescription/inputdescriptionsbyname
    public let inputDescriptionsByName: [String: MLFeatureDescription]

    /// .../mlmodeldescription/outputdescriptionsbyname
    public let outputDescriptionsByName: [String: MLFeatureDescription]

    init(_ spec: Spec) {
        inputDescriptionsByName = Dictionary(uniqueKeysWithValues: spec.inputs.map { ($0.name, MLFeatureDescription($0)) })
        outputDescriptionsByName = Dictionary(uniqueKeysWithValues: spec.outputs.map { ($0.name, MLFeatureDescription($0)) })
    }
}
