// SPDX-License-Identifier: Apache-2.0
import Foundation

@testable import Bespoke

/// A call of an operator in a graph.
struct GraphCall {
    let node: ExportedGraph.Node
    let values: [String: Numbers]

    private func argument(_ name: String) -> ExportedGraph.Argument? {
        node.inputs.first { $0.name == name }?.arg
    }

    /// The tensors of an argument; of a number, the scalar.
    func all(_ name: String) -> [Numbers] {
        switch argument(name) {
        case .int(let number): [Numbers([], .int64, [Double(number)])]
        case .float(let number): [Numbers([], .float32, [number])]
        case let other: other?.names.map { values[$0]! } ?? []
        }
    }

    subscript(_ name: String) -> Numbers { all(name)[0] }

    func int(_ name: String, or other: Int = 0) -> Int {
        if case .int(let number)? = argument(name) { number } else { other }
    }

    func ints(_ name: String) -> [Int] {
        if case .ints(let numbers)? = argument(name) { numbers } else { [] }
    }

    /// The kind that `dtype` asks for, by the numbers of torch.export.
    func kind() throws -> Numbers.Kind {
        switch argument("dtype") {
        case .type(5): return .int64
        case .type(7): return .float32
        default: throw EngineError.failed("\(node.target): another type than float32 or int64")
        }
    }

    /// The results; an operator that is not here is an error.
    func results() throws -> [Numbers] {
        let name = node.target.replacing("torch.ops.", with: "")
        if let operation = GraphCall.operators[name] {
            return [try operation(self)]
        }
        switch name {
        case "aten.split.Tensor":
            let (input, size) = (self["self"], int("split_size"))
            let dimension = input.dimension(int("dim"))
            return stride(from: 0, to: input.shape[dimension], by: size).map {
                input.cut(dimension, $0, min(size, input.shape[dimension] - $0))
            }
        case "bespoke.head_chunk_int4.default":
            return headChunk()
        default:
            throw EngineError.failed("no operator \(name)")
        }
    }

    private static let operators: [String: @Sendable (GraphCall) throws -> Numbers] = [
        "aten.view.default": { $0["self"].viewed($0.ints("size")) },
        "aten._unsafe_view.default": { $0["self"].viewed($0.ints("size")) },
        "aten.clone.default": { $0["self"] },
        "aten.t.default": { $0["self"].transposed(0, 1) },
        "aten.transpose.int": { $0["self"].transposed($0.int("dim0"), $0.int("dim1")) },
        "aten.expand.default": { $0["self"].expanded(to: $0.ints("size")) },
        "aten.unsqueeze.default": { call in
            var made = call["self"]
            let place = call.int("dim")
            made.shape.insert(1, at: place < 0 ? place + made.shape.count + 1 : place)
            return made
        },
        "aten.select.int": { call in
            let input = call["self"]
            let dimension = input.dimension(call.int("dim"))
            var made = input.cut(dimension, call.int("index"), 1)
            made.shape.remove(at: dimension)
            return made
        },
        "aten.cat.default": { call in
            let all = call.all("tensors")
            return Numbers.joined(all, all[0].dimension(call.int("dim")))
        },
        "aten.stack.default": { Numbers.joined($0.all("tensors").map { $0.viewed([1] + $0.shape) }, 0) },
        "aten.add.Tensor": { $0["self"].with($0["other"], nil, +) },
        "aten.sub.Tensor": { $0["self"].with($0["other"], nil, -) },
        "aten.mul.Tensor": { $0["self"].with($0["other"], nil, *) },
        "aten.div.Tensor": { $0["self"].with($0["other"], .float32, /) },
        "aten.le.Tensor": { $0["self"].with($0["other"], .bool) { $0 <= $1 ? 1 : 0 } },
        "aten.gt.Tensor": { $0["self"].with($0["other"], .bool) { $0 > $1 ? 1 : 0 } },
        "aten.eq.Tensor": { $0["self"].with($0["other"], .bool) { $0 == $1 ? 1 : 0 } },
        "aten.bitwise_and.Tensor": { $0["self"].with($0["other"], .bool) { $0 * $1 } },
        "aten.where.self": { call in
            let chosen = call["condition"].with(call["self"], .float32) { $0 == 1 ? $1 : .nan }
            return chosen.with(call["other"]) { $0.isNaN ? $1 : $0 }
        },
        "aten.rsqrt.default": { $0["self"].mapped { 1 / $0.squareRoot() } },
        "aten.log.default": { $0["self"].mapped { log($0) } },
        "aten.sigmoid.default": { $0["self"].mapped { 1 / (1 + exp(-$0)) } },
        "aten.zeros_like.default": { $0["self"].mapped { _ in 0 } },
        "aten._to_copy.default": { $0["self"].mapped(try $0.kind()) { $0 } },
        "aten.scalar_tensor.default": { $0["s"].mapped(try $0.kind()) { $0 } },
        "aten.arange.default": { call in
            let count = call.int("end")
            return Numbers([count], .int64, (0..<count).map(Double.init))
        },
        "aten.sum.default": { call in Numbers([], .float32, [call["self"].values.reduce(0, +)]) },
        "aten.mean.default": { call in
            let values = call["self"].values
            return Numbers([], .float32, [values.reduce(0, +) / Double(values.count)])
        },
        "aten.mean.dim": { call in  // of the last dimension, which stays
            let input = call["self"]
            return Numbers(input.shape.dropLast() + [1], .float32, input.rows.map { $0.reduce(0, +) / Double($0.count) })
        },
        "aten._softmax.default": { call in  // of the last dimension
            let input = call["self"]
            let rows = input.rows.flatMap { row in
                let top = row.max()!
                let powers = row.map { exp($0 - top) }
                let sum = powers.reduce(0, +)
                return powers.map { $0 / sum }
            }
            return Numbers(input.shape, .float32, rows)
        },
        "aten.mm.default": { $0["self"].times($0["mat2"]) },
        "aten.bmm.default": { call in
            let (one, other) = (call["self"], call["mat2"])
            let all = (0..<one.shape[0]).map { place in
                one.cut(0, place, 1).viewed(Array(one.shape[1...])).times(other.cut(0, place, 1).viewed(Array(other.shape[1...])))
            }
            return Numbers.joined(all.map { $0.viewed([1] + $0.shape) }, 0)
        },
        "bespoke.linear_int4.default": { $0["x"].times($0.weights(of: $0.int("columns")).transposed(0, 1)) },
        "bespoke.embedding_int4.default": { call in
            let rows = call.weights(of: call.int("columns")).rows
            let tokens = call["tokens"].values.map { Int($0) }
            return Numbers([tokens.count, rows[0].count], .float32, tokens.flatMap { rows[$0] })
        },
    ]

    /// [out, columns]: a weight is its code (low nibble first, less 8) times the scale of its group of 32.
    private func weights(of columns: Int) -> Numbers {
        let (codes, scales) = (self["codes"], self["scales"])
        let first = Int(all("column_start").first?.values[0] ?? 0)
        let decoded = zip(codes.rows, scales.rows).flatMap { codes, scales in
            (first..<first + columns).map { column in
                let both = Int(codes[codes.startIndex + column / 2])
                let code = column % 2 == 0 ? both & 15 : both >> 4
                return Double(code - 8) * scales[scales.startIndex + column / 32]
            }
        }
        return Numbers([codes.shape[0], columns], .float32, decoded)
    }

    /// m, l, label and best after these rows of the head; sdk/bespoke/ops/head_chunk.py has the formulas.
    private func headChunk() -> [Numbers] {
        let h = self["h"]
        let (m, l, label, best) = (self["m"], self["l"], self["label"], self["best"])
        let logits = h.times(weights(of: h.shape[1]).transposed(0, 1))
        let (targets, start) = (self["targets"].values, self["start"].values[0])
        var made: (m: [Double], l: [Double], label: [Double], best: [Double]) = (m.values, l.values, label.values, best.values)
        for (row, z) in logits.rows.enumerated() {
            let (top, before) = (z.max()!, made.m[row])
            let next = max(before, top)
            made.m[row] = next
            made.l[row] = made.l[row] * exp(before - next) + z.map { exp($0 - next) }.reduce(0, +)
            let place = Int(targets[row] - start)
            if z.indices.contains(z.startIndex + place) {
                made.label[row] = z[z.startIndex + place]
            }
            if top > before {
                made.best[row] = Double(z.firstIndex(of: top)! - z.startIndex) + start
            }
        }
        return [
            Numbers(m.shape, .float32, made.m), Numbers(l.shape, .float32, made.l), Numbers(label.shape, .float32, made.label),
            Numbers(best.shape, .int64, made.best),
        ]
    }
}
