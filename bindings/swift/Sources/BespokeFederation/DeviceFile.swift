// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What a device keeps of its part in one task, in a file of its own. A change is on the disk before it is used, and threads and processes
/// change it one after the other.
struct DeviceFile: Sendable {
    /// What is in the file.
    struct Content: Codable {
        var format = 1

        /// As the key store keeps it.
        var key: Data

        /// The server that has let this device in.
        var server: String?

        /// Of the last request that was signed.
        var counter: Int64 = 0

        /// Of bodies.
        var bytesSent: Int64 = 0
        var bytesReceived: Int64 = 0

        /// When numbers were made last, in seconds since 1970.
        var measuredAt: Double?
    }

    let url: URL

    /// What is in the file; nil: there is none.
    func read() throws -> Content? {
        let bytes: Data
        do {
            bytes = try Data(contentsOf: url)
        } catch CocoaError.fileReadNoSuchFile {
            return nil
        }
        guard let content = try? JSONDecoder().decode(Content.self, from: bytes), content.format == 1 else {
            throw FederationError(
                kind: .key, subject: url.path, got: "\(bytes.count) bytes of something else",
                expected: "a device's key as the SDK writes it",
                nextStep: "Leave the federation and join again: the server lets in the new key with a new token.")
        }
        return content
    }

    /// Changes what is in the file; nil: there is none yet.
    func change<Result>(_ change: (inout Content?) throws -> Result) throws -> Result {
        try FileManager.default.createDirectory(at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
        return try locked {
            var content = try read()
            let result = try change(&content)
            if let content {
                try write(content)
            }
            return result
        }
    }

    /// Deletes the file, also one of something else. Its bytes are overwritten first.
    func delete() throws {
        guard FileManager.default.fileExists(atPath: url.deletingLastPathComponent().path) else { return }
        try locked {
            for file in [url, partial] where FileManager.default.fileExists(atPath: file.path) {
                let handle = try FileHandle(forWritingTo: file)
                let size = try handle.seekToEnd()
                try handle.seek(toOffset: 0)
                try handle.write(contentsOf: Data(count: Int(size)))
                try synchronize(handle.fileDescriptor)
                try handle.close()
                try FileManager.default.removeItem(at: file)
            }
            try synchronizeFolder()
        }
    }

    private var partial: URL { url.appendingPathExtension("partial") }

    /// Under another name first, which takes the file's place as a whole.
    private func write(_ content: Content) throws {
        try? FileManager.default.removeItem(at: partial)
        let attributes: [FileAttributeKey: Any] = [
            .posixPermissions: 0o600, .protectionKey: FileProtectionType.completeUntilFirstUserAuthentication,
        ]
        guard FileManager.default.createFile(atPath: partial.path, contents: nil, attributes: attributes) else {
            throw CocoaError(.fileWriteUnknown, userInfo: [NSFilePathErrorKey: partial.path])
        }
        let handle = try FileHandle(forWritingTo: partial)
        try handle.write(contentsOf: JSONEncoder().encode(content))
        try synchronize(handle.fileDescriptor)
        try handle.close()
        var kept = partial
        var values = URLResourceValues()
        values.isExcludedFromBackup = true  // a counter that came back from a backup would begin again
        try kept.setResourceValues(values)
        guard rename(partial.path, url.path) == 0 else { throw failed() }
        try synchronizeFolder()
    }

    /// One thread of one process at a time. The folder is what is locked, since the file is replaced.
    private func locked<Result>(_ work: () throws -> Result) throws -> Result {
        let folder = open(url.deletingLastPathComponent().path, O_RDONLY | O_CLOEXEC)
        guard folder >= 0 else { throw failed() }
        defer { close(folder) }  // and with it the lock
        while flock(folder, LOCK_EX) != 0 {
            guard errno == EINTR else { throw failed() }
        }
        return try work()
    }

    private func synchronizeFolder() throws {
        let folder = open(url.deletingLastPathComponent().path, O_RDONLY | O_CLOEXEC)
        guard folder >= 0 else { throw failed() }
        defer { close(folder) }
        try synchronize(folder)
    }

    /// Returns once it is on the disk, and not only on its way.
    private func synchronize(_ descriptor: Int32) throws {
        #if canImport(Darwin)
        if fcntl(descriptor, F_FULLFSYNC) == 0 { return }
        #endif
        guard fsync(descriptor) == 0 else { throw failed() }
    }

    private func failed() -> any Error {
        CocoaError(
            .fileWriteUnknown,
            userInfo: [
                NSFilePathErrorKey: url.path,
                NSUnderlyingErrorKey: NSError(domain: NSPOSIXErrorDomain, code: Int(errno)),
            ])
    }
}
