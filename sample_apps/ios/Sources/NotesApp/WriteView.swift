// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

/// One new note.
struct WriteView: View {
    let notes: NotesModel
    @State private var text = ""
    @FocusState private var isFocused: Bool
    @Environment(\.dismiss) private var dismiss

    var body: some View {
        NavigationStack {
            Form {
                TextField(words(.writeHint), text: $text, axis: .vertical)
                    .focused($isFocused)
            }
            .navigationTitle(words(.writeTitle))
            .toolbar {
                ToolbarItem(placement: .cancellationAction) {
                    Button(words(.cancel), role: .cancel) { dismiss() }
                }
                ToolbarItem(placement: .confirmationAction) {
                    Button(words(.writeSave)) {
                        notes.write(text.trimmed)  // nobody waits for the model to be opened
                        dismiss()
                    }
                    .disabled(text.isBlank)
                }
            }
        }
        .onAppear { isFocused = true }
    }
}
