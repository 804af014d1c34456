// swift-tools-version: 6.1
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

#if os(Linux)
// For tests: `tools/swift.sh` says where libbespoke_core is. What Apple's frameworks have, stubs have.
let core = Target.systemLibrary(name: "CBespoke")
let library: [LinkerSetting] = [.linkedLibrary("bespoke_core")]
let frameworks: [Target.Dependency] = ["BackgroundTasks"]
let stubs: [Target] = [.target(name: "BackgroundTasks", path: "Tests/Stubs/BackgroundTasks")]
#else
// `bindings/swift/make_xcframework.sh` builds it on a Mac.
let core = Target.binaryTarget(name: "CBespoke", path: "Bespoke.xcframework")
let library: [LinkerSetting] = [.linkedLibrary("c++")]
let frameworks: [Target.Dependency] = []
let stubs: [Target] = []
#endif

let package = Package(
    name: "Bespoke",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [
        .library(name: "Bespoke", targets: ["Bespoke"]),
        .library(name: "BespokeBackground", targets: ["BespokeBackground"]),
    ],
    targets: [
        core,
        .target(name: "Bespoke", dependencies: ["CBespoke"], linkerSettings: library),
        .target(name: "BespokeBackground", dependencies: ["Bespoke"] + frameworks),
        .testTarget(name: "BespokeTests", dependencies: ["Bespoke", "BespokeBackground", "Learner"] + frameworks),
        .executableTarget(name: "Learner", dependencies: ["Bespoke"], path: "Tests/Learner"),  // which a test kills
    ] + stubs,
    swiftLanguageModes: [.v6]
)
