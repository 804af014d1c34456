// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What stands in for the part of Core ML that computes: a test says what a prediction gives.
public final class Runtime: @unchecked Sendable {
    public static let shared = Runtime()

    private let lock = NSLock()
    private var computing: (Prediction) throws -> [String: MLMultiArray] = { _ in [:] }

    /// Computes with `computing` while `body` runs.
    public func with<Result>(
        _ computing: @escaping (Prediction) throws -> [String: MLMultiArray], _ body: () async throws -> Result
    ) async rethrows -> Result {
        set(computing)
        defer { set { _ in [:] } }
        return try await body()
    }

    private func set(_ computing: @escaping (Prediction) throws -> [String: MLMultiArray]) {
        lock.withLock { self.computing = computing }
    }

    func compute(_ prediction: Prediction) throws -> [String: MLMultiArray] {
        try lock.withLock { computing }(prediction)
    }
}

/// What a model was asked for.
public struct Prediction {
    public let spec: Spec
    public let computeUnits: MLComputeUnits
    public let inputs: [String: MLMultiArray]
    public let backings: [String: MLMultiArray]
}
