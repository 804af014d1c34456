// SPDX-License-Identifier: Apache-2.0
import Foundation

@testable import Bespoke

/// An engine in Swift: it runs the exported graphs of a bundle of few operators.
final class GraphEngine: MemoryReportingEngine, @unchecked Sendable {
    let target = "graphs of few operators"
    let runsExportedGraphs = true

    /// Bytes that it claims to hold elsewhere.
    private let elsewhere: Int64
    /// What each open and each run throws.
    private let openFailure, runFailure: EngineError?

    private let lock = NSLock()
    private var counts = (opened: 0, closed: 0, runs: 0)

    init(elsewhere: Int64 = 0, openFailure: EngineError? = nil, runFailure: EngineError? = nil) {
        self.elsewhere = elsewhere
        self.openFailure = openFailure
        self.runFailure = runFailure
    }

    /// Programs that it opened, of them those that are no longer open, and runs.
    var seen: (opened: Int, closed: Int, runs: Int) { lock.withLock { counts } }

    func open(_ artifact: Artifact) throws -> any Program {
        if let openFailure { throw openFailure }
        let graph = try ExportedGraph(artifact.bytes)
        guard graph.inputs.count == artifact.operands.count else {
            throw EngineError.otherSignature("\(graph.inputs.count) operands")
        }
        lock.withLock { counts.opened += 1 }
        return Opened(engine: self, graph: graph, operands: artifact.operands, results: artifact.results)
    }

    func peakBytes() -> Int64 { elsewhere }

    private final class Opened: Program {
        let engine: GraphEngine
        let graph: ExportedGraph
        let operands, results: [TensorType]

        init(engine: GraphEngine, graph: ExportedGraph, operands: [TensorType], results: [TensorType]) {
            (self.engine, self.graph) = (engine, graph)
            (self.operands, self.results) = (operands, results)
        }

        deinit {
            engine.lock.withLock { engine.counts.closed += 1 }
        }

        func run(operands given: [UnsafeRawBufferPointer], results places: [UnsafeMutableRawBufferPointer]) throws {
            engine.lock.withLock { engine.counts.runs += 1 }
            if let failure = engine.runFailure { throw failure }
            let made = try graph.computed(zip(given, operands).map { Numbers($0, $1) })
            for (number, place) in places.enumerated() {
                try made[number].write(to: place, results[number].element)
            }
        }
    }
}

extension ExportedGraph {
    /// The graph's results from its operands.
    func computed(_ operands: [Numbers]) throws -> [Numbers] {
        var values = Dictionary(uniqueKeysWithValues: zip(inputs, operands))
        for node in nodes {
            let made = try GraphCall(node: node, values: values).results()
            for (name, value) in zip(node.outputs.flatMap(\.names), made) {
                values[name] = value
            }
        }
        return outputs.map { values[$0]! }
    }
}
