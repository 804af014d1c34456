// swift-tools-version: 6.2
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

#if os(Linux)
// To type-check the screens: what the app uses of Apple's framework.
let frameworks: [Target.Dependency] = ["SwiftUI"]
let stubs: [Target] = [.target(name: "SwiftUI", path: "Tests/Stubs/SwiftUI")]
#else
let frameworks: [Target.Dependency] = []
let stubs: [Target] = []
#endif

let bespoke: [Target.Dependency] = [.product(name: "Bespoke", package: "swift"), .product(name: "BespokeBackground", package: "swift")]

let targets: [Target] = [
    .target(name: "NotesModels", dependencies: bespoke),
    .executableTarget(name: "NotesApp", dependencies: ["NotesModels"] + frameworks, exclude: ["Resources"]),
    .testTarget(name: "NotesModelsTests", dependencies: ["NotesModels"] + bespoke),
]

let package = Package(
    name: "Notes",
    platforms: [.iOS(.v17)],
    dependencies: [.package(path: "../../bindings/swift")],
    targets: targets + stubs,
    swiftLanguageModes: [.v6]
)
