// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

/// One question, answered as the app came and with what was learned, side by side. The user may correct the second answer.
struct AskView: View {
    @State private var asked: AskModel

    init(_ parts: Parts) {
        asked = AskModel(parts)
    }

    var body: some View {
        Form {
            Section {
                TextField(words(.askHint), text: $asked.question, axis: .vertical)
                Button(words(.askGo)) { asked.ask() }
                    .disabled(!asked.canAsk)
            }
            if let hint {
                Section { Text(hint) }
            }
            if let answers = asked.answers {
                Section {
                    SideBySide {
                        AnswerView(title: words(.askBefore), answer: answers.before)
                        AnswerView(title: words(.askAfter), answer: answers.after)
                    }
                }
            }
            if asked.correctable != nil {
                Section {
                    TextField(words(.askAfter), text: $asked.better, axis: .vertical)
                    Button(words(.askSave)) { asked.correct() }
                        .disabled(!asked.canSave)
                } header: {
                    Text(words(.askBetter))
                }
            }
        }
        .navigationTitle(words(.askTitle))
    }

    private var hint: String? {
        if let problem = asked.problem { return StatusWords(words).text(of: problem) }
        if asked.isAsking { return words(.working) }
        if asked.isCorrected { return words(.askCorrected) }
        return asked.answers?.learned == false ? words(.askNothingLearned) : nil
    }
}
