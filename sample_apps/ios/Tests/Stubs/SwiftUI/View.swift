// SPDX-License-Identifier: Apache-2.0
// A stand-in for Apple's framework on Linux, which type-checks the app's screens and draws nothing: what the app uses, as
// developer.apple.com/documentation/swiftui declares it. Each part names its page below that address. Underscored attributes, which the
// pages leave out, are as in SwiftUI's published interface file.

/// /view
@MainActor @preconcurrency public protocol View {
    associatedtype Body: View

    @ViewBuilder var body: Body { get }
}

extension Never: View {
    public var body: Never { neverRuns() }
}

/// /optional, of which the page lists that it is a view where its content is one.
extension Optional: View where Wrapped: View {
    public var body: Never { neverRuns() }
}

/// /emptyview
public nonisolated struct EmptyView: View {
    public var body: Never { neverRuns() }

    public init() {}
}

/// /tupleview
public nonisolated struct TupleView<T>: View {
    public var body: Never { neverRuns() }
}

/// /modifiedcontent
public nonisolated struct ModifiedContent<Content, Modifier> {}

extension ModifiedContent: View where Content: View {
    public var body: Never { neverRuns() }
}

/// What a modifier gives: a view of which no more is known.
nonisolated struct Modified: View {
    var body: Never { neverRuns() }
}

nonisolated func neverRuns() -> Never {
    fatalError("nothing here runs")
}
