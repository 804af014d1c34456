// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// How much of what is needed has come, in bytes.
public struct DeliveryProgress: Hashable, Sendable {
    /// What is here.
    public let bytes: Int64

    /// What is needed, as far as is known.
    public let of: Int64
}

/// A bundle that comes from a server into a folder. This module and BespokeFederation make requests to a network, and no other.
///
/// What has come stays when a connection is cut or the app is ended, and the next call asks for the rest. The core installs what has come
/// whole and holds every file against its hash; until then the bundle that was there stays as it is.
public struct Delivery: Sendable {
    private let folder: URL
    private let trust: Trust
    private let configuration: @Sendable () -> URLSessionConfiguration

    /// - Parameters:
    ///   - folder: For this bundle alone. It is made where there is none.
    ///   - trust: By what the app knows its bundle.
    ///   - configuration: Of the session that downloads.
    public init(
        folder: URL, trust: Trust = Trust(), configuration: @escaping @Sendable () -> URLSessionConfiguration = { Delivery.unmetered }
    ) {
        self.folder = folder
        self.trust = trust
        self.configuration = configuration
    }

    /// Downloads over networks that cost nothing and that the user does not save.
    public static var unmetered: URLSessionConfiguration {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.allowsCellularAccess = false
        #if canImport(Darwin)
        configuration.allowsExpensiveNetworkAccess = false
        configuration.allowsConstrainedNetworkAccess = false
        #endif
        return configuration
    }

    /// The installed bundle; nil: none has come yet.
    public var bundle: URL? { FileManager.default.fileExists(atPath: manifest.path) ? installed : nil }

    /// Brings a bundle by the fewest bytes: by a delta, by the method alone, or by all of it. Nothing is asked for where it is here, so an
    /// app may call this at each launch.
    ///
    /// - Returns: The bundle's folder.
    /// - Throws: `URLError` where trying again later may help, ``DeliveryError`` and `BespokeError` where it does not.
    @discardableResult
    public func bring(
        _ download: BundleDownload, onProgress: @escaping @Sendable (DeliveryProgress) -> Void = { _ in }
    ) async throws -> URL {
        let place = try Place.taken(folder)
        defer { place.leave() }
        try FileManager.default.createDirectory(at: archives, withIntermediateDirectories: true)
        if !isHere(download) {
            try keepOnly(download)
            if try await !update(to: download, onProgress) {
                try await install([download.method, download.weights], onProgress)
            }
            try JSONEncoder.sorted.encode(download).write(to: note, options: .atomic)
        }
        try FileManager.default.removeItem(at: archives)
        return installed
    }

    /// Takes an archive that came by a background session or by Background Assets, so that ``bring(_:onProgress:)`` does not ask for it.
    /// The file is moved where it has the sha256 of an archive of `download`.
    ///
    /// - Returns: Whether it was taken.
    public func take(_ file: URL, of download: BundleDownload) throws -> Bool {
        let digest = try sha256(of: file)
        guard download.archives.contains(where: { $0.sha256 == digest }) else { return false }
        try FileManager.default.createDirectory(at: archives, withIntermediateDirectories: true)
        let whole = archives.appending(path: "\(digest).zip")
        if FileManager.default.fileExists(atPath: whole.path) {
            try FileManager.default.removeItem(at: file)
        } else {
            try FileManager.default.moveItem(at: file, to: whole)
        }
        return true
    }

    private var installed: URL { folder.appending(path: "bundle") }
    private var manifest: URL { installed.appending(path: "manifest.json") }
    private var archives: URL { folder.appending(path: "archives") }
    private var note: URL { folder.appending(path: "delivered.json") }

    private func isHere(_ download: BundleDownload) -> Bool {
        bundle != nil && (try? Data(contentsOf: note)) == (try? JSONEncoder.sorted.encode(download))
    }

    /// Out of the bundle that is here; false: there is none, it has other weights, or its files are not what they were.
    private func update(to download: BundleDownload, _ onProgress: @escaping @Sendable (DeliveryProgress) -> Void) async throws -> Bool {
        guard bundle != nil else { return false }
        let digest = try sha256(of: manifest)
        let delta = download.deltas.first { $0.since == digest }
        for archive in [delta?.archive, download.method].compactMap({ $0 }) {
            do {
                try await install([archive], onProgress)
                return true
            } catch let error as BespokeError where error.kind == .bundleError {
                continue
            }
        }
        return false
    }

    private func install(_ wanted: [Archive], _ onProgress: @escaping @Sendable (DeliveryProgress) -> Void) async throws {
        let all = wanted.reduce(0) { $0 + $1.bytes }
        var before: Int64 = 0
        var files: [URL] = []
        for archive in wanted {
            let done = before
            let file = ResumedFile(archive, folder: archives, configuration: configuration)
            files.append(try await file.fetch { onProgress(DeliveryProgress(bytes: done + $0, of: all)) })
            before += archive.bytes
        }
        try await PersonalModel.install(archives: files, folder: installed, trust: trust)
    }

    /// Removes what earlier downloads left on their way.
    private func keepOnly(_ download: BundleDownload) throws {
        let known = Set(download.archives.map(\.sha256))
        for file in try FileManager.default.contentsOfDirectory(at: archives, includingPropertiesForKeys: nil)
        where !known.contains(file.deletingPathExtension().lastPathComponent) {
            try FileManager.default.removeItem(at: file)
        }
    }
}

extension JSONEncoder {
    fileprivate static var sorted: JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return encoder
    }
}

/// Holds a folder for one delivery at a time.
private struct Place {
    private static let lock = NSLock()
    nonisolated(unsafe) private static var taken: Set<String> = []
    private let path: String

    static func taken(_ folder: URL) throws -> Place {
        let path = folder.standardizedFileURL.path
        guard lock.withLock({ taken.insert(path).inserted }) else {
            throw DeliveryError(
                subject: path, got: "a second delivery", expected: "one at a time", nextStep: "Wait for the first one to end.")
        }
        return Place(path: path)
    }

    func leave() {
        _ = Self.lock.withLock { Self.taken.remove(path) }
    }
}
