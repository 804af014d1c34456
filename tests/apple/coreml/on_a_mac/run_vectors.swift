// SPDX-License-Identifier: Apache-2.0
// Golden vectors through Core ML: swift run_vectors.swift FOLDER [cpuOnly|cpuAndNeuralEngine|all]
//
// FOLDER is what `python -m tests.apple.coreml.vectors FOLDER` wrote. For each graph: the largest error in terms of the
// result's largest value, seconds to load and to run, and the footprint of the process. It exits with 1 where an error is
// above 1e-5 (fp32 specs on the CPU). Written on Linux, where it was neither compiled nor run.

import CoreML
import Foundation

struct Tensor: Decodable { let name: String; let shape: [Int]; let dtype: String; let file: String }
struct Vector: Decodable { let graph: String; let spec: String; let inputs: [Tensor]; let outputs: [Tensor] }

let folder = URL(fileURLWithPath: CommandLine.arguments[1])
let units: [String: MLComputeUnits] = ["cpuOnly": .cpuOnly, "cpuAndNeuralEngine": .cpuAndNeuralEngine, "all": .all]
let configuration = MLModelConfiguration()
configuration.computeUnits = units[CommandLine.arguments.count > 2 ? CommandLine.arguments[2] : "cpuOnly"]!

func footprint() -> UInt64 {
  var info = task_vm_info_data_t()
  var count = mach_msg_type_number_t(MemoryLayout<task_vm_info_data_t>.size / MemoryLayout<natural_t>.size)
  let status = withUnsafeMutablePointer(to: &info) {
    $0.withMemoryRebound(to: integer_t.self, capacity: Int(count)) {
      task_info(mach_task_self_, task_flavor_t(TASK_VM_INFO), $0, &count)
    }
  }
  return status == KERN_SUCCESS ? info.phys_footprint : 0
}

func dataType(_ name: String) -> MLMultiArrayDataType {
  switch name {
  case "fp32": return .float32
  case "fp16": return .float16
  case "int32": return .int32
  case "int8":
    if #available(macOS 26.0, iOS 26.0, *) { return .int8 }
    fatalError("features of int8 need macOS 26 or iOS 26")
  default: fatalError("element type \(name)")
  }
}

func array(_ tensor: Tensor) throws -> MLMultiArray {
  let made = try MLMultiArray(shape: tensor.shape.map { NSNumber(value: $0) }, dataType: dataType(tensor.dtype))
  let data = try Data(contentsOf: folder.appendingPathComponent(tensor.file))
  made.withUnsafeMutableBytes { bytes, _ in data.copyBytes(to: bytes) }  // what was just made is dense
  return made
}

func numbers(_ found: MLMultiArray) -> [Double] { (0..<found.count).map { found[$0].doubleValue } }

let vectors = try JSONDecoder().decode([Vector].self, from: Data(contentsOf: folder.appendingPathComponent("index.json")))
var worst = 0.0
for vector in vectors {
  let began = Date()
  let asset = try MLModelAsset(specification: Data(contentsOf: folder.appendingPathComponent(vector.spec)))
  let model = try await MLModel.load(asset: asset, configuration: configuration)
  let loaded = Date()
  let inputs = try MLDictionaryFeatureProvider(
    dictionary: Dictionary(uniqueKeysWithValues: vector.inputs.map { ($0.name, MLFeatureValue(multiArray: try array($0))) }))
  let results = try await model.prediction(from: inputs)
  let seconds = Date().timeIntervalSince(loaded)
  var error = 0.0
  for tensor in vector.outputs {
    let expected = numbers(try array(tensor))
    let got = numbers(results.featureValue(for: tensor.name)!.multiArrayValue!)
    let largest = expected.map(abs).max() ?? 0
    let off = zip(got, expected).map { abs($0 - $1) }.max() ?? 0
    error = max(error, off / (largest > 0 ? largest : 1))
  }
  worst = max(worst, error)
  print(vector.graph, "error", error, "load", loaded.timeIntervalSince(began), "run", seconds, "footprint", footprint())
}
print("largest error", worst, "over", vectors.count, "graphs")
exit(worst <= 1e-5 ? 0 : 1)
