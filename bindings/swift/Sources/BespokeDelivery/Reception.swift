// SPDX-License-Identifier: Apache-2.0
import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// Writes the answer to one request into a file, as it comes.
final class Reception: Receiver, @unchecked Sendable {
    private let from, all: Int64
    private let place: (HTTPURLResponse, Int64) throws -> FileHandle
    private let onBytes: @Sendable (Int64) -> Void
    private var file: FileHandle?
    private var at: Int64 = 0

    /// `place` says where the answer to a request from byte `from` on goes.
    init(
        from: Int64, of all: Int64, place: @escaping (HTTPURLResponse, Int64) throws -> FileHandle,
        onBytes: @escaping @Sendable (Int64) -> Void
    ) {
        (self.from, self.all, self.place, self.onBytes) = (from, all, place, onBytes)
    }

    func begin(_ answer: HTTPURLResponse) throws {
        let file = try place(answer, from)
        at = Int64(try file.offset())
        self.file = file
    }

    func take(_ bytes: Data) throws {
        guard at + Int64(bytes.count) <= all else { throw URLError(.dataLengthExceedsMaximum) }
        try file?.write(contentsOf: bytes)
        at += Int64(bytes.count)
        onBytes(at)
    }

    func end(_ failure: (any Error)?) throws {
        if at == all { try file?.synchronize() }  // before it gets its name
        try file?.close()
        if failure == nil && at < all { throw URLError(.networkConnectionLost) }
    }
}
