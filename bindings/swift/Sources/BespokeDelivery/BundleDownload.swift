// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// A bundle as `bespoke pack` wrote it and a server has it.
public struct BundleDownload: Codable, Hashable, Sendable {
    /// weights.zip, which is not asked for where the installed bundle has the same weights.
    public var weights: Archive

    /// method.zip.
    public var method: Archive

    /// Archives that make this bundle out of older ones that the app knows. Each is smaller than ``method``.
    public var deltas: [Delta]

    public init(weights: Archive, method: Archive, deltas: [Delta] = []) {
        self.weights = weights
        self.method = method
        self.deltas = deltas
    }

    var archives: [Archive] { deltas.map(\.archive) + [method, weights] }
}

/// A file of a server.
public struct Archive: Codable, Hashable, Sendable {
    /// Where it is; by https.
    public let url: URL

    /// Its sha256 in hexadecimal. A file with another one is not used.
    public let sha256: String

    /// Its size in bytes.
    public let bytes: Int64

    /// - Throws: ``DeliveryError`` for a URL without https, for what is no sha256, and for no bytes.
    public init(url: URL, sha256: String, bytes: Int64) throws {
        guard url.scheme == "https" || url.host() == "127.0.0.1" else {
            throw DeliveryError(subject: "an archive", got: "\(url)", expected: "a URL with https", nextStep: "Serve it by https.")
        }
        guard sha256.wholeMatch(of: /[0-9a-f]{64}/) != nil else {
            throw DeliveryError(
                subject: "\(url)", got: "the sha256 \"\(sha256)\"", expected: "64 hexadecimal digits in lower case",
                nextStep: "Take what sha256sum says of the file.")
        }
        guard bytes > 0 else {
            throw DeliveryError(subject: "\(url)", got: "\(bytes) bytes", expected: "more", nextStep: "Take the size of the file.")
        }
        self.url = url
        self.sha256 = sha256
        self.bytes = bytes
    }
}

/// What makes the new bundle out of an older one.
public struct Delta: Codable, Hashable, Sendable {
    /// The sha256 of the older one's manifest.json.
    public let since: String

    /// delta.zip.
    public let archive: Archive

    public init(since: String, archive: Archive) {
        self.since = since
        self.archive = archive
    }
}

/// A delivery that would fail in the same way if it were tried again.
public struct DeliveryError: Error, Hashable, Sendable {
    /// What it is about.
    public let subject: String

    /// What was found.
    public let got: String

    /// What should be.
    public let expected: String

    /// What to do.
    public let nextStep: String
}

extension DeliveryError: CustomStringConvertible, LocalizedError {
    public var description: String { "\(subject): got \(got), expected \(expected). \(nextStep)" }

    public var errorDescription: String? { description }

    public var recoverySuggestion: String? { nextStep }
}
