// SPDX-License-Identifier: Apache-2.0
import Foundation

extension View {
    /// /view/disabled(_:)
    public nonisolated func disabled(_ disabled: Bool) -> some View { Modified() }

    /// /view/buttonstyle(_:)-66fbx
    public nonisolated func buttonStyle<S: PrimitiveButtonStyle>(_ style: S) -> some View { Modified() }

    /// /view/focused(_:)
    public nonisolated func focused(_ condition: FocusState<Bool>.Binding) -> some View { Modified() }

    /// /view/onappear(perform:)
    public nonisolated func onAppear(perform action: (() -> Void)? = nil) -> some View { Modified() }

    /// /view/task(name:priority:file:line:_:)
    public nonisolated func task(
        name: String? = nil, priority: TaskPriority = .userInitiated, file: String = #fileID, line: Int = #line,
        @_inheritActorContext _ action: sending @escaping @isolated(any) () async -> Void
    ) -> some View { Modified() }

    /// /view/task(id:name:priority:file:line:_:)
    public nonisolated func task<T: Equatable>(
        id: T, name: String? = nil, priority: TaskPriority = .userInitiated, file: String = #fileID, line: Int = #line,
        @_inheritActorContext _ action: sending @escaping @isolated(any) () async -> Void
    ) -> some View { Modified() }

    /// /view/font(_:)
    public nonisolated func font(_ font: Font?) -> some View { Modified() }

    /// /view/foregroundstyle(_:)
    public nonisolated func foregroundStyle<S: ShapeStyle>(_ style: S) -> some View { Modified() }

    /// /view/frame(minwidth:idealwidth:maxwidth:minheight:idealheight:maxheight:alignment:)
    public nonisolated func frame(
        minWidth: CGFloat? = nil, idealWidth: CGFloat? = nil, maxWidth: CGFloat? = nil, minHeight: CGFloat? = nil,
        idealHeight: CGFloat? = nil, maxHeight: CGFloat? = nil, alignment: Alignment = .center
    ) -> some View { Modified() }

    /// /view/accessibilitylabel(_:)
    public nonisolated func accessibilityLabel<S: StringProtocol>(
        _ label: S
    ) -> ModifiedContent<Self, AccessibilityAttachmentModifier> { ModifiedContent() }

    /// /view/accessibilityelement(children:)
    public nonisolated func accessibilityElement(children: AccessibilityChildBehavior = .ignore) -> some View { Modified() }
}

/// /accessibilityattachmentmodifier
public nonisolated struct AccessibilityAttachmentModifier {}

/// /accessibilitychildbehavior
public nonisolated struct AccessibilityChildBehavior: Hashable, Sendable {
    public static let ignore = AccessibilityChildBehavior()
    public static let combine = AccessibilityChildBehavior()
}

/// /font
public nonisolated struct Font: Hashable, Sendable {
    /// /font/headline
    public static let headline = Font()
}

/// /shapestyle
public nonisolated protocol ShapeStyle: Sendable {}

/// /hierarchicalshapestyle
public nonisolated struct HierarchicalShapeStyle: ShapeStyle {}

extension ShapeStyle where Self == HierarchicalShapeStyle {
    /// /shapestyle/secondary
    public static var secondary: HierarchicalShapeStyle { HierarchicalShapeStyle() }
}
