// swift-tools-version: 6.1
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

#if os(Linux)
// For tests: `tools/swift.sh` says where libbespoke_core is.
let core = Target.systemLibrary(name: "CBespoke")
let library: [LinkerSetting] = [.linkedLibrary("bespoke_core")]
#else
// `bindings/swift/make_xcframework.sh` builds it on a Mac.
let core = Target.binaryTarget(name: "CBespoke", path: "Bespoke.xcframework")
let library: [LinkerSetting] = [.linkedLibrary("c++")]
#endif

let package = Package(
    name: "Bespoke",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "Bespoke", targets: ["Bespoke"])],
    targets: [
        core,
        .target(name: "Bespoke", dependencies: ["CBespoke"], linkerSettings: library),
        .testTarget(name: "BespokeTests", dependencies: ["Bespoke", "Learner"]),
        .executableTarget(name: "Learner", dependencies: ["Bespoke"], path: "Tests/Learner"),  // which a test kills
    ],
    swiftLanguageModes: [.v6]
)
