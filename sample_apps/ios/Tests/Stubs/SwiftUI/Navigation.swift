// SPDX-License-Identifier: Apache-2.0

/// /navigationstack
public nonisolated struct NavigationStack<Data, Root: View>: View {
    public var body: Never { neverRuns() }

    /// /navigationstack/init(root:)
    public init(@ViewBuilder root: () -> Root) where Data == NavigationPath {}
}

/// /navigationpath
public nonisolated struct NavigationPath {}

/// /navigationlink
public nonisolated struct NavigationLink<Label: View, Destination: View>: View {
    public var body: Never { neverRuns() }
}

extension NavigationLink where Destination == Never {
    /// /navigationlink/init(value:label:)-4jswo
    public nonisolated init<P: Hashable>(value: P?, @ViewBuilder label: () -> Label) {}
}

/// /toolbarcontent
@MainActor @preconcurrency public protocol ToolbarContent {}

/// /toolbaritem
public nonisolated struct ToolbarItem<ID, Content: View>: ToolbarContent {}

extension ToolbarItem where ID == () {
    /// /toolbaritem/init(placement:content:)
    public nonisolated init(placement: ToolbarItemPlacement = .automatic, @ViewBuilder content: () -> Content) {}
}

/// /toolbaritemplacement
public nonisolated struct ToolbarItemPlacement: Sendable {
    public static let automatic = ToolbarItemPlacement()
    public static let primaryAction = ToolbarItemPlacement()
    public static let confirmationAction = ToolbarItemPlacement()
    public static let cancellationAction = ToolbarItemPlacement()
}

/// /toolbarcontentbuilder
@resultBuilder public struct ToolbarContentBuilder {
    /// /toolbarcontentbuilder/buildblock(_:)
    public static func buildBlock<Content: ToolbarContent>(_ content: Content) -> some ToolbarContent { content }

    public static func buildBlock<C0: ToolbarContent, C1: ToolbarContent>(_ c0: C0, _ c1: C1) -> some ToolbarContent { c0 }
}

extension View {
    /// /view/navigationdestination(for:destination:)
    public nonisolated func navigationDestination<D: Hashable, C: View>(
        for data: D.Type, @ViewBuilder destination: @escaping (D) -> C
    ) -> some View { Modified() }

    /// /view/navigationtitle(_:)
    public nonisolated func navigationTitle<S: StringProtocol>(_ title: S) -> some View { Modified() }

    /// /view/toolbar(content:)
    public nonisolated func toolbar<Content: ToolbarContent>(@ToolbarContentBuilder content: () -> Content) -> some View { Modified() }
}
