// SPDX-License-Identifier: Apache-2.0
import Foundation

/// /layout
public nonisolated protocol Layout {}

extension Layout {
    /// /layout/callasfunction(_:)
    public func callAsFunction<V: View>(@ViewBuilder _ content: () -> V) -> some View { Modified() }
}

/// /anylayout
public nonisolated struct AnyLayout: Layout {
    /// /anylayout/init(_:)
    public init<L: Layout>(_ layout: L) {}
}

/// /vstacklayout
public nonisolated struct VStackLayout: Layout {
    /// /vstacklayout/init(alignment:spacing:)
    public init(alignment: HorizontalAlignment = .center, spacing: CGFloat? = nil) {}
}

/// /hstacklayout
public nonisolated struct HStackLayout: Layout {
    /// /hstacklayout/init(alignment:spacing:)
    public init(alignment: VerticalAlignment = .center, spacing: CGFloat? = nil) {}
}

/// /horizontalalignment
public nonisolated struct HorizontalAlignment: Equatable, Sendable {
    public static let leading = HorizontalAlignment()
    public static let center = HorizontalAlignment()
}

/// /verticalalignment
public nonisolated struct VerticalAlignment: Equatable, Sendable {
    public static let top = VerticalAlignment()
    public static let center = VerticalAlignment()
}

/// /alignment
public nonisolated struct Alignment: Equatable, Sendable {
    public static let leading = Alignment()
    public static let center = Alignment()
}
