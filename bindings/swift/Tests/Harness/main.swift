// SPDX-License-Identifier: Apache-2.0
// Golden vectors and a short run with each engine, on the machine at hand: swift run -c release --traits MLX Harness FOLDER [ENGINE...]
//
// FOLDER is what `python -m tests.apple.swift_vectors FOLDER` wrote. The table is made to be sent in. It exits with 1 where something
// does not hold.
import Bespoke
import Foundation

#if !os(Linux)
import BespokeCoreML
#endif
#if MLX
import BespokeMLX
#endif

/// The run that torch made.
struct Run: Decodable {
    let method: String
    let steps: Int64
    let seed: Int64
    let losses: [Double]
}

struct Manifest: Decodable {
    struct Target: Decodable {
        let name: String
    }

    let targets: [Target]
}

/// How a bundle is opened for one of its targets; nil: there is no engine for it here.
func options(for target: String) -> Options? {
    switch target {
    case "executorch": return Options()
    #if !os(Linux)
    case "coreml":
        guard #available(iOS 18, macOS 15, *) else { return nil }
        return Options(engine: EngineTable(CoreMLEngine()))
    #endif
    #if MLX
    case "mlx": return Options(engine: .mlx)
    #endif
    default: return nil
    }
}

/// The largest difference from torch's losses: a GPU adds in another order than a processor.
let apart = 1e-4

/// A row of the table, and whether everything held.
func measured(_ bundle: URL, _ target: String, _ options: Options, _ run: Run, _ folder: URL) async -> (String, Bool) {
    let state = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
    defer { try? FileManager.default.removeItem(at: state) }
    let name = "\(bundle.deletingPathExtension().lastPathComponent) \(target)"
    do {
        try FileManager.default.copyItem(at: folder.appending(path: "state"), to: state)
        let began = Date()
        let model = try await PersonalModel.open(bundle: bundle, state: state, options: options)
        let opened = Date().timeIntervalSince(began)
        let worst = try await model.verify().checks.map(\.worst).max() ?? 0
        let report = try await model.train(Training(method: run.method, runSteps: run.steps, seed: run.seed))
        try await model.close()
        let off = zip(report.losses, run.losses).map { abs(($0 ?? .nan) / $1 - 1) }.max() ?? .nan
        let seconds = report.stepSeconds.sorted()[report.stepSeconds.count / 2]
        let memory = report.memory
        let added = Double(memory.peakBytes - memory.idleBytes) / 1e6
        let cells = [
            name, String(format: "%.1f%%", worst * 100), String(format: "%.1e", off), String(format: "%.3f", opened),
            String(format: "%.4f", seconds), String(format: "%.1f", added), String(format: "%.1f", Double(memory.peakBytes) / 1e6),
        ]
        return ("| \(cells.joined(separator: " | ")) |", report.steps == run.steps && off <= apart)
    } catch {
        return ("| \(name) | \(error) | | | | | |", false)
    }
}

let folder = URL(fileURLWithPath: CommandLine.arguments[1])
let wanted = Set(CommandLine.arguments.dropFirst(2))
let decoder = JSONDecoder()
let run = try decoder.decode(Run.self, from: Data(contentsOf: folder.appending(path: "run.json")))
let bundles = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
    .filter { $0.pathExtension == "bundle" }.sorted { $0.path < $1.path }

let system = ProcessInfo.processInfo
let kernels = "\(system.activeProcessorCount) processors, kernels: \(PersonalModel.instructionSet)"
print("bespoke \(PersonalModel.version), \(system.operatingSystemVersionString), \(kernels)\n")
let columns = [
    "bundle", "golden vectors, of the tolerance", "losses apart from torch's", "seconds to open", "seconds a step", "MB added", "MB in all",
]
print("| \(columns.joined(separator: " | ")) |")
print("|---|---:|---:|---:|---:|---:|---:|")
var holds = true
for bundle in bundles {
    let manifest = try decoder.decode(Manifest.self, from: Data(contentsOf: bundle.appending(path: "manifest.json")))
    for target in manifest.targets.map(\.name) where wanted.isEmpty || wanted.contains(target) {
        guard let options = options(for: target) else { continue }
        let (row, held) = await measured(bundle, target, options, run, folder)
        print(row)
        holds = holds && held
    }
}
print(holds ? "\nall of it holds" : "\nnot all of it holds")
exit(holds ? 0 : 1)
