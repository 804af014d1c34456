// swift-tools-version: 6.2
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

#if os(Linux)
// For tests: `tools/swift.sh` says where libbespoke_core is. What Apple's frameworks have, stubs have.
let core = Target.systemLibrary(name: "CBespoke")
let library: [LinkerSetting] = [.linkedLibrary("bespoke_core")]
let backgroundTasks: [Target.Dependency] = ["BackgroundTasks"]
let cryptoKit: [Target.Dependency] = ["CryptoKit"]
let foundationModels: [Target.Dependency] = ["FoundationModels"]
let stubs = ["BackgroundTasks", "CryptoKit", "FoundationModels"].map {
    Target.target(name: $0, path: "Tests/Stubs/\($0)", swiftSettings: [.unsafeFlags(["-O"])])  // for hashes of archives
}
#else
// As build_xcframework.sh makes it.
let core = Target.binaryTarget(name: "CBespoke", path: "CBespoke.xcframework")
let library: [LinkerSetting] = [.linkedLibrary("c++")]
let backgroundTasks: [Target.Dependency] = []
let cryptoKit: [Target.Dependency] = []
let foundationModels: [Target.Dependency] = []
let stubs: [Target] = []
#endif

let targets: [Target] = [
    core,
    .target(name: "Bespoke", dependencies: ["CBespoke"], linkerSettings: library),
    .target(name: "BespokeBackground", dependencies: ["Bespoke"] + backgroundTasks),
    .target(name: "BespokeDelivery", dependencies: ["Bespoke"] + cryptoKit),
    .target(name: "BespokeFoundationModels", dependencies: ["Bespoke"] + foundationModels),  // needs Xcode 27
    .executableTarget(name: "Learner", dependencies: ["Bespoke"], path: "Tests/Learner"),  // which a test kills
    .testTarget(
        name: "BespokeTests",
        dependencies: ["Bespoke", "BespokeBackground", "BespokeDelivery", "BespokeFoundationModels", "Learner"] + cryptoKit),
]

let package = Package(
    name: "Bespoke",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: ["Bespoke", "BespokeBackground", "BespokeDelivery", "BespokeFoundationModels"].map { .library(name: $0, targets: [$0]) },
    targets: targets + stubs,
    swiftLanguageModes: [.v6]
)
