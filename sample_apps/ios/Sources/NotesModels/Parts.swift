// SPDX-License-Identifier: Apache-2.0
import Bespoke
import BespokeBackground
import Foundation

/// What the screens are made of, once for each process.
public final class Parts: Sendable {
    public let notebook: JSONFile<Notebook>
    public let log: JSONFile<LearningLog>
    public let learning: Learning
    public let learner: Learner
    public let assistant: Assistant
    private let models: Models

    /// - Parameters:
    ///   - folder: of all that the app keeps.
    ///   - prompt: how a question is put to the model: as a message, or as a text to go on with where it has no chat turns.
    public init(
        bundle: URL, folder: URL, prompt: @escaping @Sendable (String) -> Prompt = Prompt.user,
        device: @escaping @Sendable () -> DeviceState = { .current }
    ) {
        let state = folder.appending(path: "learned")
        let options = Options()  // the bundle lies in the app, whose signature the system has checked
        notebook = JSONFile(folder.appending(path: "notebook.json"), empty: Notebook())
        log = JSONFile(folder.appending(path: "learning.json"), empty: LearningLog())
        models = Models(bundle: bundle, usersState: state, untaughtState: folder.appending(path: "untaught"), options: options)
        learning = Learning(bundle: bundle, state: state, options: options, notebook: notebook, log: log, device: device)
        learner = Learner(notebook: notebook, log: log, models: models, learning: learning, usersState: state, prompt: prompt)
        assistant = Assistant(notebook: notebook, models: models, prompt: prompt)
    }

    /// Those of the app, with the bundle that it ships.
    public static func ofApp() throws -> Parts {
        guard let bundle = Bundle.main.url(forResource: "bundle", withExtension: "zip") else {
            throw CocoaError(.fileNoSuchFile, userInfo: [NSFilePathErrorKey: "bundle.zip"])
        }
        return Parts(bundle: bundle, folder: try StateFolder.url(named: "Notes"))
    }

    /// While nobody looks, the memory is the training's.
    public func giveMemoryBack() async throws {
        try await models.closed {}
    }
}
