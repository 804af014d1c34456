// SPDX-License-Identifier: Apache-2.0
// Uses that must not compile, one a line that ends in `wrong`. test_binding.py type-checks the file.
import BackgroundTasks
import Bespoke
import BespokeBackground
import BespokeFederation
import BespokeFoundationModels
import Foundation
import FoundationModels

func words(model: PersonalModel, conversation: Conversation, report: TrainReport, piece: AnswerPiece) async throws {
    _ = try await model.examples.add("a note")  // wrong
    _ = try await model.examples.add(.text(text: "a note"))  // wrong
    _ = Example.Message(role: "user", content: "hello")  // wrong
    _ = Training(steps: 5)  // wrong
    _ = Training(settings: ["since": Date()])  // wrong
    _ = Options(memory: 50)  // wrong
    _ = Trust(publicKey: "00ff")  // wrong
    _ = Generation(temperature: "hot")  // wrong
    _ = try await conversation.say("hello")  // wrong
    let answer: String = try await model.generate(.user("hello")).text  // wrong
    _ = answer
    _ = try await model.evaluate(split: "train")  // wrong
    _ = piece.stoppedBecause == "max_tokens"  // wrong
    _ = report.loss  // wrong
    report.steps = 5  // wrong
    model.examples = model.examples  // wrong
    try model.setPace("slow")  // wrong
    try await model.exportAdapter(to: "/tmp/adapter")  // wrong
    try await model.exportAdapter(to: URL(fileURLWithPath: "/tmp"), format: .onnx)  // wrong
    _ = try await PersonalModel.open(bundle: "chat.bundle", state: "state")  // wrong
    _ = PersonalModel()  // wrong
}

func background(model: PersonalModel, settings: BackgroundSettings, outcome: Outcome) throws {
    _ = BackgroundTraining(settings)  // wrong
    _ = BackgroundSettings(identifier: "a.b", bundle: "chat.bundle", state: "state")  // wrong
    _ = DeviceState(warmth: .hot)  // wrong
    _ = outcome.report  // wrong
    _ = BGProcessingTaskRequest()  // wrong
    BGProcessingTaskRequest(identifier: "a.b").requiresExternalPower = "yes"  // wrong
    try BGTaskScheduler.shared.submit("a.b")  // wrong
}

func sessions(model: PersonalModel) async throws {
    _ = PersonalLanguageModel("chat.bundle")  // wrong
    _ = LanguageModelSession(model: model)  // wrong
    _ = GenerationOptions(temperature: "hot")  // wrong
    _ = PersonalLanguageModel(model).capabilities.contains("tools")  // wrong
}

func together(model: PersonalModel, state: URL, client: FederationClient) async throws {
    _ = DeviceKey(file: "alice.device")  // wrong
    _ = try FederationClient(server: "https://learn.example", device: DeviceKey(file: state))  // wrong
    _ = try await model.learnTogether("https://learn.example")  // wrong
    _ = try await model.learnTogether(client, rounds: "all")  // wrong
    try await model.federation.respond(model.federation.request(), "an answer")  // wrong
    try await model.federation.leave(deleting: client)  // wrong
    client.device.counter = 0  // wrong
}
