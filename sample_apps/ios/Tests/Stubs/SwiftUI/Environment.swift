// SPDX-License-Identifier: Apache-2.0

/// /environment
@propertyWrapper public struct Environment<Value> {
    /// /environment/init(_:)
    public init(_ keyPath: KeyPath<EnvironmentValues, Value>) {}

    /// /environment/wrappedvalue
    public var wrappedValue: Value { neverRuns() }
}

/// /environmentvalues
public nonisolated struct EnvironmentValues {
    /// /environmentvalues/scenephase
    public var scenePhase: ScenePhase { neverRuns() }

    /// /environmentvalues/dynamictypesize
    public var dynamicTypeSize: DynamicTypeSize { neverRuns() }

    /// /environmentvalues/dismiss
    public var dismiss: DismissAction { neverRuns() }
}

/// /scenephase
public nonisolated enum ScenePhase: Comparable {
    case background, inactive, active
}

/// /dynamictypesize
public nonisolated enum DynamicTypeSize: Hashable, Comparable, CaseIterable {
    case xSmall, small, medium, large, xLarge, xxLarge, xxxLarge
    case accessibility1, accessibility2, accessibility3, accessibility4, accessibility5

    /// /dynamictypesize/isaccessibilitysize
    public var isAccessibilitySize: Bool { self >= .accessibility1 }
}

/// /dismissaction
@MainActor @preconcurrency public struct DismissAction {
    /// /dismissaction/callasfunction()
    public func callAsFunction() {}
}
