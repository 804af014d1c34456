// swift-tools-version: 6.2
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

#if os(Linux)
// For tests: `tools/swift.sh` says where libbespoke_core is. What Apple's frameworks have, stubs have.
let core = Target.systemLibrary(name: "CBespoke")
let library: [LinkerSetting] = [.linkedLibrary("bespoke_core")]
let frameworks: [Target.Dependency] = ["BackgroundTasks", "FoundationModels"]
let stubs: [Target] = [
    .target(name: "BackgroundTasks", path: "Tests/Stubs/BackgroundTasks"),
    .target(name: "FoundationModels", path: "Tests/Stubs/FoundationModels"),
]
#else
// An XCFramework of the core, for which there is no recipe yet.
let core = Target.binaryTarget(name: "CBespoke", path: "Bespoke.xcframework")
let library: [LinkerSetting] = [.linkedLibrary("c++")]
let frameworks: [Target.Dependency] = []
let stubs: [Target] = []
#endif

let targets: [Target] = [
    core,
    .target(name: "Bespoke", dependencies: ["CBespoke"], linkerSettings: library),
    .target(name: "BespokeBackground", dependencies: ["Bespoke"] + frameworks),
    .target(name: "BespokeFoundationModels", dependencies: ["Bespoke"] + frameworks),  // needs Xcode 27
    .executableTarget(name: "Learner", dependencies: ["Bespoke"], path: "Tests/Learner"),  // which a test kills
    .testTarget(name: "BespokeTests", dependencies: ["Bespoke", "BespokeBackground", "BespokeFoundationModels", "Learner"]),
]

let package = Package(
    name: "Bespoke",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [
        .library(name: "Bespoke", targets: ["Bespoke"]),
        .library(name: "BespokeBackground", targets: ["BespokeBackground"]),
        .library(name: "BespokeFoundationModels", targets: ["BespokeFoundationModels"]),
    ],
    targets: targets + stubs,
    swiftLanguageModes: [.v6]
)
