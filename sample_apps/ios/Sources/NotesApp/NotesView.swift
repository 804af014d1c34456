// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

/// The notes, and ways to everything else.
struct NotesView: View {
    let parts: Parts
    @Bindable var notes: NotesModel
    @Environment(\.scenePhase) private var phase
    @State private var isWriting = false
    @State private var isDeleting = false
    @State private var chosen: Note?

    var body: some View {
        NavigationStack {
            List {
                ways
                if let book = notes.book {
                    list(book.notes)
                }
            }
            .navigationTitle(words(.appName))
            .navigationDestination(for: Place.self) { place in
                switch place {
                case .learning: LearningView(notes: notes)
                case .ask: AskView(parts)
                case .versions: VersionsView(parts, notes: notes)
                }
            }
            .toolbar {
                ToolbarItem(placement: .primaryAction) {
                    Button(words(.notesWrite), systemImage: "square.and.pencil") { isWriting = true }
                }
            }
        }
        .sheet(isPresented: $isWriting) {
            WriteView(notes: notes)
        }
        .confirmationDialog(words(.deleteTitle), isPresented: $isDeleting, titleVisibility: .visible, presenting: chosen) { note in
            Button(words(.deleteYes), role: .destructive) { notes.delete(note.id) }
            Button(words(.cancel), role: .cancel) {}
        } message: { _ in
            Text(words(.deleteText))
        }
        .alert(of: $notes.problem)
        .task { notes.start() }
        .task(id: phase) {
            if phase == .active {
                await notes.watch()
            }
        }
    }

    @ViewBuilder private var ways: some View {
        Section {
            NavigationLink(value: Place.learning) {
                let said = StatusWords(words).said(of: notes.status, notes.book ?? Notebook())
                Label(words(.learningOpen, said.title), systemImage: "brain")
            }
            NavigationLink(value: Place.ask) {
                Label(words(.notesAsk), systemImage: "bubble.left.and.bubble.right")
            }
        }
    }

    @ViewBuilder private func list(_ all: [Note]) -> some View {
        Section {
            if all.isEmpty {
                Text(words(.notesEmpty)).foregroundStyle(.secondary)
            }
            ForEach(all) { note in
                NoteRow(note: note) {
                    chosen = note
                    isDeleting = true
                }
            }
        }
    }
}

/// Where a link of the app leads.
enum Place: Hashable {
    case learning, ask, versions
}
