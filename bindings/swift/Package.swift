// swift-tools-version: 6.2
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

#if os(Linux)
// For tests: `tools/swift.sh` says where libbespoke_core is. What Apple's frameworks have, stubs have.
let core = Target.systemLibrary(name: "CBespoke")
let library: [LinkerSetting] = [.linkedLibrary("bespoke_core")]
let backgroundTasks: [Target.Dependency] = ["BackgroundTasks"]
let coreML: [Target.Dependency] = ["CoreML"]
let cryptoKit: [Target.Dependency] = ["CryptoKit"]
let security: [Target.Dependency] = ["Security"]
let foundationModels: [Target.Dependency] = ["FoundationModels"]
let mlx: [Target.Dependency] = []  // its engine is compiled, against the headers of mlx-c in the checkout, and linked to nothing
let engines: [Target.Dependency] = []
let packages: [Package.Dependency] = []
let stubs =
    ["BackgroundTasks", "CoreML", "FoundationModels", "Security"].map { Target.target(name: $0, path: "Tests/Stubs/\($0)") } + [
        .target(
            name: "CryptoKit", dependencies: ["CLibcrypto", "Security"], path: "Tests/Stubs/CryptoKit",
            swiftSettings: [.unsafeFlags(["-O"])],  // for hashes of archives
            linkerSettings: [.unsafeFlags(["-Xlinker", "-l:libcrypto.so.3"])]),
        .systemLibrary(name: "CLibcrypto", path: "Tests/Stubs/CLibcrypto"),
    ]
#else
// As build_xcframework.sh makes it.
let core = Target.binaryTarget(name: "CBespoke", path: "CBespoke.xcframework")
let library: [LinkerSetting] = [.linkedLibrary("c++")]
let backgroundTasks: [Target.Dependency] = []
let coreML: [Target.Dependency] = []
let cryptoKit: [Target.Dependency] = []
let security: [Target.Dependency] = []
let foundationModels: [Target.Dependency] = []
let mlx: [Target.Dependency] = [.product(name: "MLX", package: "mlx-swift", condition: .when(traits: ["MLX"]))]
let engines: [Target.Dependency] = ["BespokeCoreML", .target(name: "BespokeMLX", condition: .when(traits: ["MLX"]))]
// Those that build MLX 0.31.1, whose files no other version reads.
let packages: [Package.Dependency] = [.package(url: "https://github.com/ml-explore/mlx-swift", "0.31.3"..."0.31.6")]
let stubs: [Target] = []
#endif

let targets: [Target] = [
    core,
    .target(name: "Bespoke", dependencies: ["CBespoke"], linkerSettings: library),
    .target(name: "BespokeBackground", dependencies: ["Bespoke"] + backgroundTasks),
    .target(name: "BespokeCoreML", dependencies: ["Bespoke"] + coreML),
    .target(name: "BespokeDelivery", dependencies: ["Bespoke"] + cryptoKit),
    .target(name: "BespokeFederation", dependencies: ["Bespoke", "BespokeBackground", "BespokeDelivery"] + cryptoKit + security),
    .target(name: "BespokeFoundationModels", dependencies: ["Bespoke"] + foundationModels),  // needs Xcode 27
    .target(name: "BespokeMLX", dependencies: ["Bespoke", "CBespokeMLX"]),
    .target(
        name: "CBespokeMLX", dependencies: mlx, sources: ["engine.cpp"],
        cxxSettings: ["src", "include", "third_party/mlx-c"].map { .headerSearchPath("native/\($0)") }),
    .executableTarget(name: "Learner", dependencies: ["Bespoke"], path: "Tests/Learner"),  // which a test kills
    .executableTarget(  // which a test kills
        name: "Member", dependencies: ["Bespoke", "BespokeFederation"], path: "Tests/Member"),
    .executableTarget(name: "Harness", dependencies: ["Bespoke"] + engines, path: "Tests/Harness"),
    .testTarget(
        name: "BespokeTests",
        dependencies: [
            "Bespoke", "BespokeBackground", "BespokeCoreML", "BespokeDelivery", "BespokeFederation", "BespokeFoundationModels", "Learner",
            "Member",
        ] + cryptoKit),
]

let libraries = [
    "Bespoke", "BespokeBackground", "BespokeCoreML", "BespokeDelivery", "BespokeFederation", "BespokeFoundationModels", "BespokeMLX",
]

let package = Package(
    name: "Bespoke",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: libraries.map { .library(name: $0, targets: [$0]) },
    traits: [.trait(name: "MLX", description: "BespokeMLX, with mlx-swift")],
    dependencies: packages,
    targets: targets + stubs,
    swiftLanguageModes: [.v6],
    cxxLanguageStandard: .cxx20
)
