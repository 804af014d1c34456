// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

struct NoteRow: View {
    let note: Note
    let delete: @MainActor () -> Void

    var body: some View {
        SideBySide {
            Text(text).frame(maxWidth: .infinity, alignment: .leading)
            Button(role: .destructive, action: delete) {
                Image(systemName: "trash")
                    .frame(minWidth: 44, minHeight: 44)
            }
            .buttonStyle(.borderless)  // else a tap anywhere in the row deletes
            .accessibilityLabel(words(.notesDelete, String(note.text.prefix(40))))  // says which one it is
        }
    }

    private var text: String {
        note.corrects.map { words(.notesCorrection, $0.question, note.text) } ?? note.text
    }
}
