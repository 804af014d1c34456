// SPDX-License-Identifier: Apache-2.0
import SwiftUI

/// Side by side, and one below the other where letters are so large that what stands side by side is too narrow to read.
struct SideBySide<Content: View>: View {
    @Environment(\.dynamicTypeSize) private var size
    @ViewBuilder let content: () -> Content

    var body: some View {
        let layout =
            size.isAccessibilitySize ? AnyLayout(VStackLayout(alignment: .leading)) : AnyLayout(HStackLayout(alignment: .top))
        layout {
            content()
        }
    }
}
