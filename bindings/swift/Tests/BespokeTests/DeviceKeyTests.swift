// SPDX-License-Identifier: Apache-2.0
import CryptoKit
import Foundation
import Testing

@testable import BespokeFederation

@Suite struct DeviceKeyTests {
    private func withKey(_ test: (DeviceKey, URL) async throws -> Void) async throws {
        try await withFolder { folder in
            let file = folder.appending(path: "parts").appending(path: "alice.device")
            try await test(DeviceKey(file: file, keys: SoftwareKeys()), file)
        }
    }

    private func sign(_ key: DeviceKey) throws -> [String: String] {
        _ = try key.publicKey()
        return try key.sign(method: "GET", path: "/", body: Data(), round: nil)
    }

    @Test func aCounterRisesAndIsOnTheDisk() async throws {
        try await withKey { key, file in
            #expect(!key.exists)
            #expect(try key.server() == nil)
            #expect(throws: FederationError.self) { try key.sign(method: "GET", path: "/", body: Data(), round: nil) }
            #expect(!key.exists)  // a request makes no key
            let first = try sign(key)
            #expect(first["Bespoke-Counter"] == "1")
            let other = DeviceKey(file: file, keys: SoftwareKeys())
            let second = try sign(other)
            #expect(second["Bespoke-Counter"] == "2" && second["Bespoke-Device"] == first["Bespoke-Device"])
            #expect(first["Bespoke-Device"] == hexadecimal(try key.publicKey()))
            #expect(second["Bespoke-Signature"]?.wholeMatch(of: /[A-Za-z0-9_-]{86}/) != nil)
            let mode = try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions] as? NSNumber
            #expect(mode?.intValue == 0o600)
            let names = try FileManager.default.contentsOfDirectory(atPath: file.deletingLastPathComponent().path)
            #expect(names == ["alice.device"])
        }
    }

    @Test func threadsThatSignAtOnceGetOneCounterEach() async throws {
        try await withKey { key, _ in
            let counters = try await withThrowingTaskGroup(of: String?.self) { group in
                for _ in 0..<16 {
                    group.addTask { try sign(key)["Bespoke-Counter"] }
                }
                return try await group.reduce(into: [String?]()) { $0.append($1) }
            }
            #expect(Set(counters.compactMap(\.self).compactMap(Int.init)) == Set(1...16))
        }
    }

    @Test func aDeletedKeyIsAnotherOneTheNextTime() async throws {
        try await withKey { key, file in
            let first = try key.publicKey()
            try key.letIn(by: "https://a")
            try key.addTraffic(sent: 3, received: 5)
            #expect(try key.server() == "https://a")
            #expect(try key.traffic() == Traffic(bytesSent: 3, bytesReceived: 5))
            let other = file.deletingLastPathComponent().deletingLastPathComponent().appending(path: "linked")
            try FileManager.default.linkItem(at: file, to: other)
            try key.delete()
            try key.delete()
            #expect(try Data(contentsOf: other).allSatisfy { $0 == 0 })
            #expect(try FileManager.default.contentsOfDirectory(atPath: file.deletingLastPathComponent().path).isEmpty)
            try key.addTraffic(sent: 3, received: 5)  // of a request that was under way
            #expect(!key.exists)
            #expect(try key.traffic() == Traffic(bytesSent: 0, bytesReceived: 0))
            #expect(try key.publicKey() != first)
        }
    }

    @Test(arguments: ["something else", "{}", #"{"format":2,"key":"AA==","counter":1,"bytesSent":0,"bytesReceived":0}"#])
    func aFileOfSomethingElseIsRefusedAndLeft(content: String) async throws {
        try await withKey { key, file in
            try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try Data(content.utf8).write(to: file)
            let error = #expect(throws: FederationError.self) { try sign(key) }
            #expect(error?.kind == .key)
            #expect(try Data(contentsOf: file) == Data(content.utf8))
            try key.delete()
            #expect(!key.exists)
        }
    }

    @Test func aKeyOfAnotherDeviceIsRefused() async throws {
        try await withKey { key, file in
            _ = try key.publicKey()
            let other = DeviceKey(file: file, keys: SecureEnclaveKeys())
            let error = #expect(throws: FederationError.self) { try other.publicKey() }
            #expect(error?.kind == .key && error?.got.hasPrefix("a key that cannot be used") == true)
        }
    }

    @Test func aCounterAtItsEndSignsNothing() async throws {
        try await withKey { key, file in
            _ = try sign(key)
            let ended = try String(contentsOf: file, encoding: .utf8)
                .replacing("\"counter\":1", with: "\"counter\":\(SignedRequest.maxCounter)")
            try ended.write(to: file, atomically: true, encoding: .utf8)
            #expect(throws: FederationError.self) { try sign(key) }
        }
    }

    @Test(arguments: ["http://example.org", "ftp://example.org", "example.org", "https://", "https://a@b", "https://a?b", "https://a#b"])
    func anAddressWithoutProtectionIsRefused(address: String) async throws {
        try await withKey { key, _ in
            let error = #expect(throws: FederationError.self) { try FederationClient(server: URL(string: address)!, device: key) }
            #expect(error?.kind == .config)
            #expect(!key.exists)
        }
    }

    @Test(arguments: [
        ("https://learn.example/", "https://learn.example"), ("https://learn.example:8443/a/b/", "https://learn.example:8443/a/b"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"), ("http://localhost", "http://localhost"), ("http://[::1]:1", "http://[::1]:1"),
    ])
    func anAddressIsKnownWithoutItsLastSlash(given: String, known: String) async throws {
        try await withKey { key, _ in
            let client = try FederationClient(server: URL(string: given)!, device: key)
            #expect(client.server == known)
        }
    }
}

#if os(Linux)
/// Against the stand-in for the chip, which keeps its keys.
@Suite(.serialized) struct SecureEnclaveTests {
    @Test func aKeyOfTheChipSignsAndOnlyItsNameIsKept() throws {
        SecureEnclave.isAvailable = true
        defer { SecureEnclave.isAvailable = false }
        let keys = SecureEnclaveKeys()
        let kept = try keys.makeKey()
        #expect(try keys.publicKey(of: kept).count == 91)
        #expect(try keys.signature(of: Data("a".utf8), by: kept).count == 64)
        #expect(try keys.publicKey(of: keys.makeKey()) != keys.publicKey(of: kept))
        #expect(throws: (any Error).self) { try keys.signature(of: Data(), by: Data("of another device".utf8)) }
    }

    @Test func withoutAChipItSaysWhatToDo() throws {
        let error = #expect(throws: FederationError.self) { try SecureEnclaveKeys().makeKey() }
        #expect(error?.kind == .key)
        #expect(error?.nextStep.contains("SoftwareKeys") == true)
    }
}
#endif
