// SPDX-License-Identifier: Apache-2.0
// Uses whose types are right and that must not compile all the same: what may wait is not awaited, what may fail is not tried, what is
// called on another thread changes what is not protected, a case is missing. Lines as in WrongUses.swift.
import BackgroundTasks
import Bespoke
import BespokeBackground
import Foundation
import FoundationModels

func notAwaited(model: PersonalModel, session: LanguageModelSession) throws {
    _ = try model.train()  // wrong
    _ = try session.respond(to: "hello")  // wrong
}

func notTried(model: PersonalModel, training: BackgroundTraining) async {
    model.setPace(0.5)  // wrong
    training.schedule()  // wrong
    _ = await model.examples.count()  // wrong
}

func notProtected(model: PersonalModel) async throws {
    var steps = 0
    _ = try await model.train { _ in
        steps += 1  // wrong
    }
}

final class Screen {
    var text = ""
}

func shared(model: PersonalModel, screen: Screen) async throws {
    _ = try await model.train { progress in
        screen.text = "\(progress.step)"  // wrong
    }
}

func missing(outcome: Outcome) -> Int {
    switch outcome {  // wrong
    case .judged: 1
    case .goesOn: 2
    }
}
