// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

/// An app without its bundle or without a place for its files.
struct UnusableView: View {
    let description: String

    var body: some View {
        ContentUnavailableView {
            Label(words(.appName), systemImage: "exclamationmark.triangle")
        } description: {
            Text(words(.problemMissing, description))
        }
    }
}
