// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

struct AnswerView: View {
    let title: String
    let answer: ModelAnswer

    var body: some View {
        Paragraph(title: title, text: text)
            .frame(maxWidth: .infinity, alignment: .leading)
    }

    private var text: String {
        if let text = answer.text, !text.isBlank { return text.trimmed }
        return words(answer.isWhole ? .askEmpty : .askWaiting)
    }
}
