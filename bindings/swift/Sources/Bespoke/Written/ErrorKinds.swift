// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_schemas.py from bindings/schema.

extension BespokeError {
    /// What kind of error it is. Later versions add kinds.
    public struct Kind: RawRepresentable, Hashable, Sendable {
        public let rawValue: Int32

        public init(rawValue: Int32) {
            self.rawValue = rawValue
        }

        /// Base of all errors of the SDK.
        public static let internalError = Kind(rawValue: 1)

        /// Settings that cannot work. Several problems are reported together by `from_problems`.
        public static let configError = Kind(rawValue: 2)

        /// An optional package is not installed, or a library that a program needs is not there.
        public static let missingDependency = Kind(rawValue: 3)

        /// Training data or an example that cannot be used. `subject` names file and row where there are any.
        public static let dataError = Kind(rawValue: 4)

        /// A plan that breaks a rule: used before defined, shapes that disagree, stored twice.
        public static let planError = Kind(rawValue: 5)

        /// A target cannot compile a graph; `subject` names graph and operator.
        public static let unsupported = Kind(rawValue: 6)

        /// A bundle that is damaged, hostile or of another version.
        public static let bundleError = Kind(rawValue: 7)

        /// A bundle in a format that this reader does not know.
        public static let bundleVersionError = Kind(rawValue: 8)

        /// A bundle whose signature is missing, wrong or by another key.
        public static let signatureError = Kind(rawValue: 9)

        /// The runtime does not reproduce the bundle's golden vectors.
        public static let goldenMismatch = Kind(rawValue: 10)

        /// A state folder that is damaged, of another version or of another base model.
        public static let stateError = Kind(rawValue: 11)

        /// Another trainer holds the state.
        public static let stateLocked = Kind(rawValue: 12)

        /// The disk has no room for a commit, the scratch file or packed weights. What was committed stays.
        public static let diskFull = Kind(rawValue: 13)

        /// The next load or call would take more memory than the limit. Raised before it.
        public static let budgetExceeded = Kind(rawValue: 14)

        /// An adapter that does not fit the model: other shapes, other rank, other base.
        public static let adapterError = Kind(rawValue: 15)

        /// Another call computes with this model. Only one can at a time.
        public static let busy = Kind(rawValue: 16)

        /// The call was cancelled, or reached its deadline, before there was anything to report.
        public static let cancelled = Kind(rawValue: 17)

        /// The state, bundle or device cannot be used now: it is busy, its files are closed, or it lacks what a program
        /// needs.
        public static let unavailable = Kind(rawValue: 18)

        /// A prompt or a sampling setting that cannot be answered.
        public static let generationError = Kind(rawValue: 19)
    }
}
