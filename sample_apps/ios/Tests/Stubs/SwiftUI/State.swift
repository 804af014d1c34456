// SPDX-License-Identifier: Apache-2.0
import Observation

/// /state
@propertyWrapper public struct State<Value> {
    /// /state/init(wrappedvalue:)
    public init(wrappedValue value: Value) {}

    /// /state/wrappedvalue
    public var wrappedValue: Value {
        get { neverRuns() }
        nonmutating set {}
    }

    /// /state/projectedvalue
    public var projectedValue: Binding<Value> { neverRuns() }
}

/// /binding
@propertyWrapper @dynamicMemberLookup public struct Binding<Value> {
    /// /binding/init(get:set:)-7ufcp
    @preconcurrency public init(
        get: @escaping @isolated(any) @Sendable () -> Value, set: @escaping @isolated(any) @Sendable (Value) -> Void
    ) {}

    /// /binding/wrappedvalue
    public var wrappedValue: Value {
        get { neverRuns() }
        nonmutating set {}
    }

    /// /binding/projectedvalue
    public var projectedValue: Binding<Value> { self }

    /// /binding/subscript(dynamicmember:)
    public subscript<Subject>(dynamicMember keyPath: WritableKeyPath<Value, Subject>) -> Binding<Subject> { neverRuns() }
}

/// Of the page of init(get:set:): "A binding conforms to Sendable only if its wrapped value type also conforms to Sendable".
extension Binding: @unchecked Sendable where Value: Sendable {}

/// /bindable
@propertyWrapper @dynamicMemberLookup public struct Bindable<Value> {
    /// /bindable/init(wrappedvalue:)
    public init(wrappedValue: Value) where Value: AnyObject & Observable {}

    /// /bindable/wrappedvalue
    public var wrappedValue: Value {
        get { neverRuns() }
        nonmutating set {}
    }

    /// /bindable/projectedvalue
    public var projectedValue: Bindable<Value> { self }
}

extension Bindable where Value: AnyObject {
    /// /bindable/subscript(dynamicmember:)
    public subscript<Subject>(dynamicMember keyPath: ReferenceWritableKeyPath<Value, Subject>) -> Binding<Subject> { neverRuns() }
}

/// /focusstate
@propertyWrapper public struct FocusState<Value: Hashable> {
    /// /focusstate/binding
    public struct Binding {}

    /// /focusstate/init()
    public init() where Value == Bool {}

    /// /focusstate/wrappedvalue
    public var wrappedValue: Value {
        get { neverRuns() }
        nonmutating set {}
    }

    /// /focusstate/projectedvalue
    public var projectedValue: FocusState<Value>.Binding { neverRuns() }
}
