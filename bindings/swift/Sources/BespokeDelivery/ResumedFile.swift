// SPDX-License-Identifier: Apache-2.0
import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// An archive on its way into a folder. What has come stays in `SHA256.partial`, and only the rest is asked for. The file gets the name
/// `SHA256.zip` once it has that hash, so a file of that name is whole.
///
/// The rest is asked for under the server's ETag (If-Range, RFC 9110, 13.1.5): a file that changed meanwhile comes from its first byte.
struct ResumedFile {
    private let archive: Archive
    private let configuration: @Sendable () -> URLSessionConfiguration
    private let partial, tag, whole: URL

    init(_ archive: Archive, folder: URL, configuration: @escaping @Sendable () -> URLSessionConfiguration) {
        self.archive = archive
        self.configuration = configuration
        partial = folder.appending(path: "\(archive.sha256).partial")
        tag = folder.appending(path: "\(archive.sha256).etag")
        whole = folder.appending(path: "\(archive.sha256).zip")
    }

    /// The whole archive. `onBytes` is told how many of its bytes are here.
    func fetch(_ onBytes: @escaping @Sendable (Int64) -> Void) async throws -> URL {
        if FileManager.default.fileExists(atPath: whole.path) { return whole }
        let isResumed = size > 0
        try await receiveAll(onBytes)
        if try takesItsName() { return whole }
        if isResumed {  // a rest of another file, which a server without ETags gives
            try await receiveAll(onBytes)
            if try takesItsName() { return whole }
        }
        throw refused(got: "a file of another sha256", expected: archive.sha256)
    }

    /// Over as many cuts as there are, while each connection brings something.
    private func receiveAll(_ onBytes: @escaping @Sendable (Int64) -> Void) async throws {
        while size != archive.bytes {
            if size > archive.bytes { discard() }
            let before = size
            do {
                try await receive(from: before, onBytes)
            } catch let cut as URLError where cut.code != .cancelled && size > before {
                continue
            }
        }
        onBytes(archive.bytes)
    }

    private func receive(from have: Int64, _ onBytes: @escaping @Sendable (Int64) -> Void) async throws {
        var request = URLRequest(url: archive.url)
        request.setValue("identity", forHTTPHeaderField: "Accept-Encoding")  // else nobody knows where the rest begins
        if have > 0 {
            request.setValue("bytes=\(have)-", forHTTPHeaderField: "Range")
            if let known = try? String(contentsOf: tag, encoding: .utf8) {
                request.setValue(known, forHTTPHeaderField: "If-Range")
            }
        }
        let reception = Reception(from: have, of: archive.bytes, place: place, onBytes: onBytes)
        try await Exchange(reception, redirects: true).run(request, configuration())
    }

    /// Says where the bytes of an answer go.
    private func place(_ answer: HTTPURLResponse, _ have: Int64) throws -> FileHandle {
        switch answer.statusCode {
        case 206 where answer.value(forHTTPHeaderField: "Content-Range") == "bytes \(have)-\(archive.bytes - 1)/\(archive.bytes)":
            let file = try FileHandle(forWritingTo: partial)
            try file.seek(toOffset: UInt64(have))
            return file
        case 200:
            guard answer.expectedContentLength < 0 || answer.expectedContentLength == archive.bytes else {
                throw refused(got: "a file of \(answer.expectedContentLength) bytes", expected: "\(archive.bytes)")
            }
            discard()
            // A weak one does not promise the same bytes.
            if let known = answer.value(forHTTPHeaderField: "ETag"), known.hasPrefix("\"") {
                try known.write(to: tag, atomically: true, encoding: .utf8)
            }
            try Data().write(to: partial)
            return try FileHandle(forWritingTo: partial)
        case 206, 416:
            discard()
            throw URLError(.badServerResponse)
        case 408, 425, 429:  // time-out, too early, too many
            throw URLError(.timedOut)
        case 300..<500:
            throw refused(got: "the answer \(answer.statusCode)", expected: "the file")
        default:
            throw URLError(.badServerResponse)
        }
    }

    private func takesItsName() throws -> Bool {
        guard try sha256(of: partial) == archive.sha256 else {
            discard()
            return false
        }
        try? FileManager.default.removeItem(at: tag)
        try FileManager.default.moveItem(at: partial, to: whole)
        return true
    }

    private var size: Int64 {
        (try? FileManager.default.attributesOfItem(atPath: partial.path)[.size] as? NSNumber)?.int64Value ?? 0
    }

    private func discard() {
        try? FileManager.default.removeItem(at: tag)
        try? FileManager.default.removeItem(at: partial)
    }

    private func refused(got: String, expected: String) -> DeliveryError {
        DeliveryError(
            subject: "\(archive.url)", got: got, expected: expected, nextStep: "See that the server has the archive that the app asks for.")
    }
}
