// SPDX-License-Identifier: Apache-2.0
// Learner BUNDLE STATE: trains on what is in a state and says each step. A test kills it.
import Bespoke
import Foundation

let arguments = CommandLine.arguments.dropFirst().map { URL(fileURLWithPath: $0) }
let model = try await PersonalModel.open(bundle: arguments[0], state: arguments[1])
let eachStep = Training(settings: ["commit_seconds": 0.001, "write_mb_per_second": 1000])  // is committed, and not one in 30 s
_ = try await model.train(eachStep) { progress in
    if progress.phase == .step {
        try? FileHandle.standardOutput.write(contentsOf: Data("\(progress.step)\n".utf8))
    }
}
