// SPDX-License-Identifier: Apache-2.0

/// /button
public nonisolated struct Button<Label: View>: View {
    public var body: Never { neverRuns() }

    /// /button/init(role:action:label:)
    @preconcurrency public init(role: ButtonRole?, action: @escaping @MainActor () -> Void, @ViewBuilder label: () -> Label) {}
}

extension Button where Label == Text {
    /// /button/init(_:action:)-lpm7
    @preconcurrency public nonisolated init<S: StringProtocol>(_ title: S, action: @escaping @MainActor () -> Void) {}

    /// /button/init(_:role:action:)
    @preconcurrency public nonisolated init<S: StringProtocol>(_ title: S, role: ButtonRole?, action: @escaping @MainActor () -> Void) {}
}

extension Button where Label == SwiftUI.Label<Text, Image> {
    /// /button/init(_:systemimage:action:)
    public nonisolated init<S: StringProtocol>(_ title: S, systemImage: String, action: @escaping @MainActor () -> Void) {}
}

/// /buttonrole
public nonisolated struct ButtonRole: Equatable, Sendable {
    /// /buttonrole/destructive
    public static let destructive = ButtonRole()

    /// /buttonrole/cancel
    public static let cancel = ButtonRole()
}

/// /primitivebuttonstyle
@MainActor @preconcurrency public protocol PrimitiveButtonStyle {}

/// /borderlessbuttonstyle
public nonisolated struct BorderlessButtonStyle: PrimitiveButtonStyle {}

extension PrimitiveButtonStyle where Self == BorderlessButtonStyle {
    /// /primitivebuttonstyle/borderless
    public nonisolated static var borderless: BorderlessButtonStyle { BorderlessButtonStyle() }
}

/// /textfield
public nonisolated struct TextField<Label: View>: View {
    public var body: Never { neverRuns() }
}

extension TextField where Label == Text {
    /// /textfield/init(_:text:axis:)
    public nonisolated init<S: StringProtocol>(_ title: S, text: Binding<String>, axis: Axis) {}
}

/// /axis
public nonisolated enum Axis: Int8, CaseIterable {
    case horizontal, vertical
}
