// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

/// A status: words, how far it is, and figures.
struct SaidView: View {
    let said: Said
    let title: String

    var body: some View {
        Paragraph(title: title, text: said.text)
        if let progress = said.progress {
            bar(progress)
        }
        ForEach(said.facts, id: \.label) { fact in
            LabeledContent(fact.label, value: fact.value)
        }
    }

    @ViewBuilder private func bar(_ progress: Said.Progress) -> some View {
        switch progress {
        case .unknown:
            ProgressView()
                .accessibilityLabel(title)
        case .step(let step, let steps):
            ProgressView(value: Double(step), total: Double(max(steps, 1)))
                .accessibilityLabel(words(.progressLabel, step, steps))
        }
    }
}

/// A heading and what stands under it, read as one by VoiceOver.
struct Paragraph: View {
    let title: String
    let text: String

    var body: some View {
        VStack(alignment: .leading, spacing: 4) {
            Text(title).font(.headline)
            Text(text)
        }
        .accessibilityElement(children: .combine)
    }
}
