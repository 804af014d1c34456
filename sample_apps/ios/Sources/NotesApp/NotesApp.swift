// SPDX-License-Identifier: Apache-2.0
import NotesModels
import SwiftUI

/// What the screens say.
let words = Words.ofApp

@main
struct NotesApp: App {
    @Environment(\.scenePhase) private var phase
    private let launched = Launched()

    var body: some Scene {
        WindowGroup {
            switch launched {
            case .ready(let parts, let notes): NotesView(parts: parts, notes: notes)
            case .failed(let description): UnusableView(description: description)
            }
        }
        .onChange(of: phase) {
            if phase == .background, case .ready(_, let notes) = launched {
                notes.giveMemoryBack()
            }
        }
    }
}
