// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

/// What learning is, the switch, and where it is now.
struct LearningView: View {
    let notes: NotesModel

    var body: some View {
        List {
            if let book = notes.book {
                if !book.learns {
                    explanation
                }
                status(book)
                actions(book)
                if book.hasTaught {
                    learned
                }
            }
        }
        .navigationTitle(words(.learningTitle))
    }

    @ViewBuilder private var explanation: some View {
        Section {
            Paragraph(title: words(.whatTitle), text: words(.whatText))
            Paragraph(title: words(.whereTitle), text: words(.whereText))
            Paragraph(title: words(.privateTitle), text: words(.privateText))
        }
    }

    @ViewBuilder private func status(_ book: Notebook) -> some View {
        let said = StatusWords(words).said(of: notes.status, book)
        Section {
            SaidView(said: said, title: words(.learningOpen, said.title))
        }
    }

    @ViewBuilder private func actions(_ book: Notebook) -> some View {
        Section {
            if book.learns {
                Button(words(.switchOff)) { notes.switchOff() }
            } else {
                Button(words(.switchOn)) { notes.switchOn() }
            }
        }
        if notes.canLearnNow {
            Section {
                Button(words(.learnNow)) { notes.learnNow(title: words(.learnNowTitle), subtitle: words(.appName)) }
            } footer: {
                Text(words(.learnNowAbout))
            }
        }
    }

    @ViewBuilder private var learned: some View {
        if let last = notes.last {
            let said = StatusWords(words).said(of: last)
            Section {
                SaidView(said: said, title: said.title)
                if last.accepted == true {
                    NavigationLink(value: Place.ask) {
                        Text(words(.learningCompare))
                    }
                }
            }
        }
        Section {
            NavigationLink(value: Place.versions) {
                Text(words(.versionsOpen))
            }
        }
    }
}
