// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

/// What was accepted, and the ways back: one version, or to the beginning.
struct VersionsView: View {
    private let notes: NotesModel
    @State private var model: VersionsModel
    @State private var isRollingBack = false
    @State private var isForgetting = false

    init(_ parts: Parts, notes: NotesModel) {
        self.notes = notes
        model = VersionsModel(parts)
    }

    var body: some View {
        List {
            Section {
                ForEach(model.rows(words)) { row in
                    Paragraph(title: row.title, text: row.detail)
                }
                if let message {
                    Text(message)
                }
            } footer: {
                Text(words(.versionsAbout))
            }
            Section {
                if model.versions?.isEmpty == false {
                    Button(words(.rollBack)) { isRollingBack = true }
                }
                if model.hasTaught {
                    Button(words(.forget), role: .destructive) { isForgetting = true }
                }
            }
            .disabled(model.isWorking)
        }
        .navigationTitle(words(.versionsTitle))
        .confirmationDialog(words(.rollBackTitle), isPresented: $isRollingBack, titleVisibility: .visible) {
            Button(words(.rollBackYes), role: .destructive) { model.rollBack() }
            Button(words(.cancel), role: .cancel) {}
        } message: {
            Text(words(.rollBackText))
        }
        .confirmationDialog(words(.forgetTitle), isPresented: $isForgetting, titleVisibility: .visible) {
            Button(words(.forgetYes), role: .destructive) { model.forgetEverything() }
            Button(words(.cancel), role: .cancel) {}
        } message: {
            Text(words(.forgetText))
        }
        .alert(of: $model.problem)
        .task(id: notes.last) { await model.refresh() }  // a version may come while somebody looks
    }

    private var message: String? {
        if model.isWorking { return words(.working) }
        guard let versions = model.versions else { return nil }
        if !model.hasTaught { return words(.forgotten) }
        return versions.isEmpty ? words(.versionsNone) : nil
    }
}
