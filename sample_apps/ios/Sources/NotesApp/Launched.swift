// SPDX-License-Identifier: Apache-2.0
import NotesModels

/// What the launch has made, before it ends: the system starts the app for its tasks too, and asks for their handlers then.
@MainActor enum Launched {
    case ready(Parts, NotesModel)
    case failed(String)

    init() {
        do {
            let parts = try Parts.ofApp()
            let isPermitted = parts.learning.register()
            assert(isPermitted, "Info.plist lacks the identifier")
            self = .ready(parts, NotesModel(parts))
        } catch {
            self = .failed(error.localizedDescription)
        }
    }
}
