// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A graph of a bundle as torch.export writes it: what an interpreter needs of it.
struct ExportedGraph: Decodable {
    struct Name: Decodable {
        let name: String
    }

    /// An argument, or the place of a result.
    enum Argument: Decodable {
        case tensor(String)
        case tensors([String])
        case int(Int)
        case float(Double)
        case ints([Int])
        case type(Int)
        case other

        enum CodingKeys: String, CodingKey {
            case tensor = "as_tensor"
            case tensors = "as_tensors"
            case int = "as_int"
            case float = "as_float"
            case ints = "as_ints"
            case type = "as_scalar_type"
        }

        init(from decoder: any Decoder) throws {
            let one = try decoder.container(keyedBy: CodingKeys.self)
            switch one.allKeys.first {
            case .tensor: self = .tensor(try one.decode(Name.self, forKey: .tensor).name)
            case .tensors: self = .tensors(try one.decode([Name].self, forKey: .tensors).map(\.name))
            case .int: self = .int(try one.decode(Int.self, forKey: .int))
            case .float: self = .float(try one.decode(Double.self, forKey: .float))
            case .ints: self = .ints(try one.decode([Int].self, forKey: .ints))
            case .type: self = .type(try one.decode(Int.self, forKey: .type))
            case nil: self = .other
            }
        }

        var names: [String] {
            switch self {
            case .tensor(let name): [name]
            case .tensors(let names): names
            default: []
            }
        }
    }

    struct Node: Decodable {
        struct Input: Decodable {
            let name: String
            let arg: Argument
        }

        let target: String
        let inputs: [Input]
        let outputs: [Argument]
    }

    private struct Module: Decodable {
        struct Graph: Decodable {
            let inputs, outputs: [Argument]
            let nodes: [Node]
        }

        let graph: Graph
    }

    let inputs, outputs: [String]
    let nodes: [Node]

    enum CodingKeys: String, CodingKey {
        case module = "graph_module"
    }

    init(from decoder: any Decoder) throws {
        let graph = try decoder.container(keyedBy: CodingKeys.self).decode(Module.self, forKey: .module).graph
        inputs = graph.inputs.flatMap(\.names)
        outputs = graph.outputs.flatMap(\.names)
        nodes = graph.nodes
    }

    init(_ bytes: UnsafeRawBufferPointer) throws {
        let decoder = JSONDecoder()
        decoder.nonConformingFloatDecodingStrategy = .convertFromString(
            positiveInfinity: "Infinity", negativeInfinity: "-Infinity", nan: "NaN")
        self = try decoder.decode(Self.self, from: Data(bytes))
    }
}
