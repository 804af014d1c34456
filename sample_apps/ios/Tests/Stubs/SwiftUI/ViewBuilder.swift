// SPDX-License-Identifier: Apache-2.0

/// /viewbuilder
@resultBuilder public struct ViewBuilder {
    /// /viewbuilder/buildexpression(_:)
    public static func buildExpression<Content: View>(_ content: Content) -> Content { content }

    /// /viewbuilder/buildblock()
    public static func buildBlock() -> EmptyView { EmptyView() }

    /// /viewbuilder/buildblock(_:)
    public static func buildBlock<Content: View>(_ content: Content) -> Content { content }

    public static func buildBlock<each Content: View>(_ content: repeat each Content) -> TupleView<(repeat each Content)> { TupleView() }

    /// /viewbuilder/buildif(_:)
    public static func buildIf<Content: View>(_ content: Content?) -> Content? { content }

    /// /viewbuilder/buildeither(first:)
    public static func buildEither<First: View, Second: View>(first: First) -> _ConditionalContent<First, Second> { _ConditionalContent() }

    /// /viewbuilder/buildeither(second:)
    public static func buildEither<First: View, Second: View>(second: Second) -> _ConditionalContent<First, Second> {
        _ConditionalContent()
    }
}

public nonisolated struct _ConditionalContent<First: View, Second: View>: View {
    public var body: Never { neverRuns() }
}
