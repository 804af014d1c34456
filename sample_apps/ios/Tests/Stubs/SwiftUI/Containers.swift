// SPDX-License-Identifier: Apache-2.0

import Foundation

/// /list
public nonisolated struct List<SelectionValue, Content: View>: View {
    public var body: Never { neverRuns() }

    /// /list/init(content:)
    public init(@ViewBuilder content: () -> Content) where SelectionValue == Never {}
}

/// /form
public nonisolated struct Form<Content: View>: View {
    public var body: Never { neverRuns() }

    /// /form/init(content:)
    public init(@ViewBuilder content: () -> Content) {}
}

/// /section
public struct Section<Parent, Content, Footer> {}

extension Section: View where Parent: View, Content: View, Footer: View {
    public var body: Never { neverRuns() }
}

extension Section where Parent == EmptyView, Content: View, Footer == EmptyView {
    /// /section/init(content:)
    public init(@ViewBuilder content: () -> Content) {}
}

extension Section where Parent: View, Content: View, Footer == EmptyView {
    /// /section/init(content:header:)
    public init(@ViewBuilder content: () -> Content, @ViewBuilder header: () -> Parent) {}
}

extension Section where Parent == EmptyView, Content: View, Footer: View {
    /// /section/init(content:footer:)
    public init(@ViewBuilder content: () -> Content, @ViewBuilder footer: () -> Footer) {}
}

/// /foreach
public nonisolated struct ForEach<Data: RandomAccessCollection, ID: Hashable, Content> {}

extension ForEach: View where Content: View {
    public var body: Never { neverRuns() }

    /// /foreach/init(_:content:)
    public nonisolated init(_ data: Data, @ViewBuilder content: @escaping (Data.Element) -> Content)
    where Data.Element: Identifiable, ID == Data.Element.ID {}

    /// /foreach/init(_:id:content:)
    public nonisolated init(
        _ data: Data, id: KeyPath<Data.Element, ID>, @ViewBuilder content: @escaping (Data.Element) -> Content
    ) {}
}

/// /vstack
public nonisolated struct VStack<Content: View>: View {
    public var body: Never { neverRuns() }

    /// /vstack/init(alignment:spacing:content:)
    public init(alignment: HorizontalAlignment = .center, spacing: CGFloat? = nil, @ViewBuilder content: () -> Content) {}
}
