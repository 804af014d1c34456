// SPDX-License-Identifier: Apache-2.0

/// /text
public nonisolated struct Text: View {
    public var body: Never { neverRuns() }

    /// /text/init(_:)-9d1g4
    public init<S: StringProtocol>(_ content: S) {}
}

/// /image
public nonisolated struct Image: View {
    public var body: Never { neverRuns() }

    /// /image/init(systemname:)
    public init(systemName: String) {}
}

/// /label
public nonisolated struct Label<Title: View, Icon: View>: View {
    public var body: Never { neverRuns() }
}

extension Label where Title == Text, Icon == Image {
    /// /label/init(_:systemimage:)
    public nonisolated init<S: StringProtocol>(_ title: S, systemImage name: String) {}
}

/// /labeledcontent
public struct LabeledContent<Label, Content> {}

extension LabeledContent: View where Label: View, Content: View {
    public var body: Never { neverRuns() }
}

extension LabeledContent where Label == Text, Content == Text {
    /// /labeledcontent/init(_:value:)
    public init<S1: StringProtocol, S2: StringProtocol>(_ title: S1, value: S2) {}
}

/// /contentunavailableview
public nonisolated struct ContentUnavailableView<Label: View, Description: View, Actions: View>: View {
    public var body: Never { neverRuns() }

    /// /contentunavailableview/init(label:description:actions:)
    public init(
        @ViewBuilder label: () -> Label, @ViewBuilder description: () -> Description = { EmptyView() },
        @ViewBuilder actions: () -> Actions = { EmptyView() }
    ) {}
}

/// /progressview
public nonisolated struct ProgressView<Label: View, CurrentValueLabel: View>: View {
    public var body: Never { neverRuns() }

    /// /progressview/init()
    public init() where Label == EmptyView, CurrentValueLabel == EmptyView {}

    /// /progressview/init(value:total:)
    public init<V: BinaryFloatingPoint>(value: V?, total: V = 1.0) where Label == EmptyView, CurrentValueLabel == EmptyView {}
}
