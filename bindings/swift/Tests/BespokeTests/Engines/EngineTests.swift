// SPDX-License-Identifier: Apache-2.0
import Foundation
import Testing

@testable import Bespoke

/// What tests/support/engine_fixture.py has made: a small bundle, examples, and what torch makes of the same graphs.
enum Small {
    static let bundle = Fixture.folder.appending(path: "small.bundle")
    static let tokens: [[Int64]] = Fixture.read("tokens.json")
    static let torch: Torch = Fixture.read("engines.json")

    struct Torch: Decodable {
        let losses: [Double]
        let lossBefore: Double
    }

    /// The loss of the base model and the losses of a run, computed by an engine.
    static func trained(by engine: EngineTable, memoryMb: Double? = nil) async throws -> (lossBefore: Double, TrainReport) {
        var found: (Double, TrainReport)?
        try await withModel(notes: false, bundle: bundle, options: Options(memoryMb: memoryMb, engine: engine)) { model, _ in
            for (number, tokens) in tokens.enumerated() {
                try await model.examples.add(.tokens(tokens), id: "example-\(number)", mustKnow: true)
            }
            let before = try await model.evaluate(split: .train).loss
            found = (try #require(before), try await model.train())
        }
        return found!
    }

    /// The largest relative difference from what torch computed.
    static func difference(_ lossBefore: Double, _ report: TrainReport) -> Double {
        let all = zip([lossBefore] + report.losses.map { $0 ?? .nan }, [torch.lossBefore] + torch.losses)
        return all.map { abs($0 - $1) / $1 }.max()!
    }
}

@Suite struct EngineTests {
    @Test func anEngineInSwiftTrainsAsTorchDoes() async throws {
        let engine = GraphEngine()
        let (before, report) = try await Small.trained(by: EngineTable(engine))
        #expect(report.losses.count == Small.torch.losses.count)
        let difference = Small.difference(before, report)
        print("largest relative difference of an engine in Swift from torch: \(difference)")
        #expect(difference < 1e-6)
        let seen = engine.seen
        #expect(seen.opened > 20 && seen.runs > 200)
        #expect(seen.closed == seen.opened)
    }

    @Test(arguments: [
        (EngineError.otherSignature("three operands"), BespokeError.Kind.bundleError),
        (.noMemory("no room"), .budgetExceeded),
        (.diskFull("no room on the disk"), .diskFull),
        (.missingDependency("no libexample"), .missingDependency),
        (.unavailable("no such chip"), .unavailable),
    ])
    func whatAnEngineThrowsSaysWhatLacks(thrown: EngineError, kind: BespokeError.Kind) async throws {
        try await expect(kind, thrown.text, from: GraphEngine(openFailure: thrown))
        try await expect(kind, thrown.text, from: GraphEngine(runFailure: thrown))
    }

    @Test func anArtifactIsToBlameWhereAnEngineSaysNoMore() async throws {
        let thrown = EngineError.failed("no such operator")
        try await expect(.bundleError, thrown.text, from: GraphEngine(openFailure: thrown))
        try await expect(.planError, thrown.text, from: GraphEngine(runFailure: thrown))
    }

    private func expect(_ kind: BespokeError.Kind, _ text: String, from engine: GraphEngine) async throws {
        try await withModel(notes: false, bundle: Small.bundle, options: Options(engine: EngineTable(engine))) { model, _ in
            let refused = await error { _ = try await model.evaluate(examples: [.tokens(Small.tokens[0])]) }
            #expect(refused?.kind == kind)
            #expect(refused?.got.contains(text) == true, "\(String(describing: refused))")
        }
    }

    @Test func aLongReasonIsCutBetweenCharacters() async throws {
        let long = String(repeating: "ä", count: 5000)
        let options = Options(engine: EngineTable(GraphEngine(runFailure: .failed(long))))
        try await withModel(notes: false, bundle: Small.bundle, options: options) { model, _ in
            let refused = await error { _ = try await model.evaluate(examples: [.tokens(Small.tokens[0])]) }
            let count = refused?.got.count { $0 == "ä" } ?? 0
            #expect(count > 50 && count < 5000)
            #expect(refused?.got.contains("\u{FFFD}") == false)
        }
    }

    @Test func whatAnEngineHoldsElsewhereCounts() async throws {
        let (_, report) = try await Small.trained(by: EngineTable(GraphEngine(elsewhere: 300_000_000)))
        #expect(report.peakBytes > 300_000_000)
        let refused = await error {
            _ = try await Small.trained(by: EngineTable(GraphEngine(elsewhere: 300_000_000)), memoryMb: 250)
        }
        #expect(refused?.kind == .budgetExceeded)
    }

    @Test func anEngineLivesAsLongAsItsModel() async throws {
        weak var engine: GraphEngine?
        func options() -> Options {
            let made = GraphEngine()
            engine = made
            return Options(engine: EngineTable(made))
        }
        try await withModel(notes: false, bundle: Small.bundle, options: options()) { _, _ in
            #expect(engine != nil)
        }
        #expect(engine == nil)

        let missing = Small.bundle.appending(path: "nothing")
        let refused = await error { try await withModel(notes: false, bundle: missing, options: options()) { _, _ in } }
        #expect(refused?.kind == .bundleError)
        #expect(engine == nil)
    }

    @Test func anEngineThatCannotBeHadOpensNoModel() async throws {
        let options = Options(engine: EngineTable { throw EngineError.unavailable("another version of its library") })
        let refused = await error { try await withModel(notes: false, bundle: Small.bundle, options: options) { _, _ in } }
        #expect(refused?.kind == .unavailable)
        #expect(refused?.got == "another version of its library")
    }

    @Test func anEngineOfATargetRefusesABundleWithoutIt() async throws {
        struct Elsewhere: Engine {
            let target = "elsewhere"
            func open(_ artifact: Artifact) throws -> any Program { throw EngineError.failed("never asked for") }
        }
        try await withModel(notes: false, bundle: Small.bundle, options: Options(engine: EngineTable(Elsewhere()))) { model, _ in
            let refused = await error { _ = try await model.evaluate(examples: [.tokens(Small.tokens[0])]) }
            #expect(refused?.kind == .bundleError)
            #expect(refused?.subject.contains("elsewhere") == true || refused?.expected.contains("elsewhere") == true)
        }
    }
}
