// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A document in a file that is replaced whole, so that a process that ends while it writes leaves the old one.
public final class JSONFile<Document: Codable & Sendable>: @unchecked Sendable {
    private let file: URL
    private let empty: Document
    private let lock = NSLock()
    private var known: Document?

    /// - Parameter empty: what is read as long as there is no file.
    public init(_ file: URL, empty: Document) {
        self.file = file
        self.empty = empty
    }

    public func read() throws -> Document {
        try lock.withLock { try loaded() }
    }

    /// Returns what was written.
    @discardableResult
    public func change(_ change: (inout Document) -> Void) throws -> Document {
        try lock.withLock {
            var document = try loaded()
            change(&document)
            try JSONEncoder().encode(document).write(to: file, options: .atomic)
            known = document
            return document
        }
    }

    private func loaded() throws -> Document {
        if let known { return known }
        let document: Document
        do {
            document = try JSONDecoder().decode(Document.self, from: Data(contentsOf: file))
        } catch let error as CocoaError where error.code == .fileReadNoSuchFile {
            document = empty
        }
        known = document
        return document
    }
}
