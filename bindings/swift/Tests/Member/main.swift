// SPDX-License-Identifier: Apache-2.0
// Member COMMAND BUNDLE STATE ...: a device of a federation, whose key is next to its state. tests/swift/test_federation.py runs and kills
// it. Each command says what came of it in JSON.
//
//   join                 keeps two examples, and gives consent
//   run SERVER [TOKEN]   enrols with a token, and takes part in one round
//   many SERVER          says "ready", and takes part in 20 rounds
//   status, leave        what it has cost; takes the consent back
//   adopt, forget        of the shared adapter, and of an example
import Bespoke
import BespokeFederation
import Foundation

struct Status: Encodable {
    let status: FederationStatus
    let bytesSent, bytesReceived: Int64
    let hasKey: Bool
}

struct Done: Encodable {
    let measured: [Int64]
    let followed, round: Int64
    let waitSeconds: Double
    let isDone: Bool
}

struct Failed: Encodable {
    let error: String
    let status: Int?
    let retrySeconds: Double
}

func say(_ value: some Encodable) throws {
    print(String(decoding: try JSONEncoder().encode(value), as: UTF8.self))
}

let arguments = Array(CommandLine.arguments.dropFirst())
let (command, rest) = (arguments[0], Array(arguments.dropFirst(3)))
let (bundle, state) = (URL(fileURLWithPath: arguments[1]), URL(fileURLWithPath: arguments[2]))
let key = DeviceKey(file: state.appendingPathExtension("device"), keys: SoftwareKeys())  // the chip's keys end with a process on Linux

func client() throws -> FederationClient {
    try FederationClient(server: URL(string: rest[0])!, device: key)
}

func run(_ model: PersonalModel, rounds: Int = 1) async throws {
    let done = try await model.learnTogether(client(), rounds: rounds)
    try say(
        Done(
            measured: done.measured, followed: done.followed, round: done.round, waitSeconds: done.waitSeconds, isDone: done.isDone))
}

do {
    let model = try await PersonalModel.open(bundle: bundle, state: state)
    switch command {
    case "join":
        for number in 0..<2 {
            try await model.examples.add(.tokens([3, 4, 5 + Int64(number)], mask: [0, 1, 1]), id: "\(number)", mustKnow: true)
        }
        print(try await model.federation.status().explanation)
        try await model.federation.join()
    case "run":
        if rest.count > 1 {
            try await client().enrol(token: rest[1])
        }
        try await run(model)
    case "many":
        print("ready")
        fflush(nil)
        try await run(model, rounds: 20)
    case "adopt":
        try say(try await model.federation.adopt())
    case "forget":
        try say(try await model.examples.forget("0"))
    case "leave":
        try await model.federation.leave(deleting: key)
        fallthrough
    case "status":
        let traffic = try key.traffic()
        let status = try await model.federation.status()
        try say(Status(status: status, bytesSent: traffic.bytesSent, bytesReceived: traffic.bytesReceived, hasKey: key.exists))
    default:
        fatalError("no command \(command)")
    }
    try await model.close()
} catch let error as FederationError {
    var status: Int?
    if case .refused(let said) = error.kind { status = said }
    try say(Failed(error: "\(error)", status: status, retrySeconds: error.retrySeconds))
    exit(3)
} catch {
    try say(Failed(error: "\(error)", status: nil, retrySeconds: 0))
    exit(4)
}
