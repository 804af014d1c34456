// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What has passed between a device and servers, in bytes of bodies.
public struct Traffic: Hashable, Sendable {
    /// To servers.
    public let bytesSent: Int64

    /// From servers.
    public let bytesReceived: Int64
}

/// A device's key for a server of federated learning. It belongs to one user's part in one task, and nothing of the user is in it. Deleting
/// it ends what a server can tell about this device.
///
/// Its file counts requests too, since a server takes each counter once. Threads and processes may share it.
public struct DeviceKey: Sendable {
    private let file: DeviceFile
    private let keys: any KeyStore

    /// The key is made when it is first asked for, as ``FederationClient/enrol(token:)`` does.
    ///
    /// - Parameter file: for this key alone, next to the user's state. It is in no backup.
    public init(file: URL, keys: any KeyStore = SecureEnclaveKeys()) {
        self.file = DeviceFile(url: file)
        self.keys = keys
    }

    /// The file of the key and its counter.
    public var url: URL { file.url }

    /// Whether there is a key.
    public var exists: Bool { FileManager.default.fileExists(atPath: url.path) }

    /// The public key as SubjectPublicKeyInfo in DER. Makes the key if there is none.
    public func publicKey() throws -> Data {
        let kept = try file.change { content in
            let there = try content ?? DeviceFile.Content(key: used(keys.makeKey))
            content = there
            return there.key
        }
        return try used { try keys.publicKey(of: kept) }
    }

    /// The server that has let this device in; nil: none has.
    public func server() throws -> String? {
        try file.read()?.server
    }

    /// What has passed with this key.
    public func traffic() throws -> Traffic {
        let content = try file.read()
        return Traffic(bytesSent: content?.bytesSent ?? 0, bytesReceived: content?.bytesReceived ?? 0)
    }

    /// Deletes the key. Its bytes are overwritten first.
    public func delete() throws {
        try file.delete()
    }

    /// When numbers were made last.
    func measuredAt() throws -> Date? {
        try file.read()?.measuredAt.map(Date.init(timeIntervalSince1970:))
    }

    /// Notes that a server has let this device in.
    func letIn(by server: String) throws {
        try note { $0.server = server }
    }

    /// Notes that numbers were made.
    func measured(at date: Date) throws {
        try note { $0.measuredAt = date.timeIntervalSince1970 }
    }

    /// Adds bytes that have passed.
    func addTraffic(sent: Int, received: Int) throws {
        try note {
            $0.bytesSent += Int64(sent)
            $0.bytesReceived += Int64(received)
        }
    }

    /// The headers of a request. Its counter is on the disk before anything is sent: a process that is killed skips one and repeats none.
    /// A key that was deleted meanwhile stays deleted.
    func sign(method: String, path: String, body: Data, round: Int64?) throws -> [String: String] {
        let (kept, counter) = try file.change { content in
            guard var there = content else { throw refused("no key", "Have the server let this device in: enrol(token:).") }
            guard there.counter < SignedRequest.maxCounter else {
                throw refused("a counter at its end", "Leave the federation and join again.")
            }
            there.counter += 1
            content = there
            return (there.key, there.counter)
        }
        let device = try SignedRequest.device(of: used { try keys.publicKey(of: kept) })
        let bytes = SignedRequest.bytes(method: method, path: path, body: body, device: device, round: round, counter: counter)
        return [
            SignedRequest.deviceHeader: device,
            SignedRequest.counterHeader: "\(counter)",
            SignedRequest.signatureHeader: SignedRequest.header(of: try used { try keys.signature(of: bytes, by: kept) }),
        ]
    }

    /// Nothing for a key that was deleted meanwhile.
    private func note(_ change: (inout DeviceFile.Content) -> Void) throws {
        guard exists else { return }
        try file.change { content in
            guard var noted = content else { return }
            change(&noted)
            content = noted
        }
    }

    /// What a key store says of a key that it does not know is an error of its own.
    private func used<Result>(_ work: () throws -> Result) throws -> Result {
        do {
            return try work()
        } catch let error as FederationError {
            throw error
        } catch {
            throw refused("a key that cannot be used: \(error)", "Leave the federation and join again.")
        }
    }

    private func refused(_ got: String, _ nextStep: String) -> FederationError {
        FederationError(kind: .key, subject: url.path, got: got, expected: "a key that can sign", nextStep: nextStep)
    }
}
