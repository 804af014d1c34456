// SPDX-License-Identifier: Apache-2.0
import BespokeCoreML
import CoreML
import Foundation
import Testing

@testable import Bespoke

/// Over a stand-in for Core ML that checks what it is given against the specs, and computes by the interpreter.
@Suite(.serialized) struct CoreMLTests {
    private let runtime: GraphRuntime

    init() throws {
        runtime = try GraphRuntime()
    }

    @Test func itTrainsAsTorchDoes() async throws {
        let (before, report) = try await Runtime.shared.with(runtime.compute) {
            try await Small.trained(by: EngineTable(CoreMLEngine()))
        }
        let difference = Small.difference(before, report)
        print("largest relative difference of the Core ML engine from torch: \(difference)")
        #expect(difference < 1e-6)
        #expect(Set(runtime.predictions.map(\.spec.data)).count > 20)
        #expect(Set(runtime.predictions.map(\.computeUnits)) == [.cpuOnly])
    }

    @Test func tensorsStayWhereTheyAre() async throws {
        let one = try OneSpec("head_chunk")
        let names = one.operandTypes.map(\.name)
        one.operands[names.firstIndex(of: "start")!].storeBytes(of: 5, as: Int64.self)
        one.operands[names.firstIndex(of: "state.m")!].withMemoryRebound(to: Float.self) { $0.update(repeating: -1e30) }
        try await Runtime.shared.with(runtime.compute) {
            try one.run(one.open(CoreMLEngine(computeUnits: .cpuAndNeuralEngine)))
        }
        let prediction = try #require(runtime.predictions.last)
        #expect(prediction.computeUnits == .cpuAndNeuralEngine)
        var copied: [String] = []
        for (number, type) in one.operandTypes.enumerated() {
            let array = try #require(prediction.inputs["x\(number)"])
            if array.address != UnsafeRawPointer(one.operands[number].baseAddress) { copied.append(type.name) }
        }
        #expect(copied == ["targets", "start", "state.best"])  // int64, which Core ML does not take
        for (number, type) in one.resultTypes.enumerated() {
            let backing = prediction.backings["y\(number)"]
            let place = UnsafeRawPointer(one.results[number].baseAddress)
            #expect(backing?.address == (type.element == .int64 ? nil : place))
        }
        // All rows of the head are the same, so that the first one is the likeliest.
        #expect(Set(one.results[3].bindMemory(to: Int64.self)) == [5])
    }

    @Test func whatCoreMLPutsElsewhereIsCopied() async throws {
        let one = try OneSpec("embed")
        let (rows, columns) = (one.resultTypes[0].shape[0], one.resultTypes[0].shape[1])
        func compute(_: Prediction) throws -> [String: MLMultiArray] {
            let padded = UnsafeMutablePointer<Float>.allocate(capacity: rows * 64)
            for place in 0..<rows * 64 { padded[place] = Float(place) }
            let shape = [NSNumber(value: rows), NSNumber(value: columns)]
            let array = try MLMultiArray(dataPointer: padded, shape: shape, dataType: .float32, strides: [64, 1]) { $0.deallocate() }
            return ["y0": array]
        }
        try await Runtime.shared.with(compute) {
            try one.run(one.open(CoreMLEngine()))
        }
        let expected = (0..<rows).flatMap { row in (0..<columns).map { Float(row * 64 + $0) } }
        #expect(Array(one.results[0].bindMemory(to: Float.self)) == expected)
    }

    @Test func anIntegerBeyondWhatCoreMLAddsIsFittedOrRefused() async throws {
        let tile = try OneSpec("attention_tile")
        let window = try #require(tile.operandTypes.firstIndex { $0.name == "window" })
        tile.operands[window].storeBytes(of: 1 << 40, as: Int64.self)
        try await Runtime.shared.with(runtime.compute) { try tile.run(tile.open(CoreMLEngine())) }
        let given = try #require(runtime.predictions.last?.inputs["x\(window)"])
        #expect(given.withUnsafeBytes { $0.load(as: Int32.self) } == 1 << 30)

        let embed = try OneSpec("embed")
        embed.operands[0].storeBytes(of: 1 << 31, toByteOffset: 8, as: Int64.self)
        let program = try embed.open(CoreMLEngine())
        let said = "\(embed.operandTypes[0].name) has the integer 2147483648, and Core ML's int32 can add those up to 2^30"
        #expect(throws: EngineError.failed(said)) { try embed.run(program) }
    }

    @Test func aSpecOfOtherTensorsIsRefused() throws {
        let other = TensorType(name: "h", shape: [3, 3], element: .float32)
        for change in 0..<4 {
            let one = try OneSpec("embed")
            switch change {
            case 0: one.operandTypes[0] = other
            case 1: one.operandTypes.append(other)
            case 2: one.resultTypes[0] = other
            default: one.operandTypes.swapAt(1, 2)
            }
            let thrown = #expect(throws: EngineError.self) { try one.open(CoreMLEngine()) }
            guard case .otherSignature? = thrown else {
                Issue.record("change \(change): \(String(describing: thrown))")
                continue
            }
        }
    }

    @Test func whatCoreMLSaysIsTold() async throws {
        let said = NSError(domain: "com.apple.CoreML", code: 7, userInfo: [NSLocalizedDescriptionKey: "no such operation"])
        let options = Options(engine: EngineTable(CoreMLEngine()))
        func refuse(_: Prediction) throws -> [String: MLMultiArray] { throw said }
        try await Runtime.shared.with(refuse) {
            try await withModel(notes: false, bundle: Small.bundle, options: options) { model, _ in
                let refused = await error { _ = try await model.evaluate(examples: [.tokens(Small.tokens[0])]) }
                #expect(refused?.kind == .planError)
                #expect(refused?.got.contains("no such operation") == true, "\(String(describing: refused))")
            }
        }
    }
}
