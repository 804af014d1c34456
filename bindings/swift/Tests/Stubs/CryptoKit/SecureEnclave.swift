// SPDX-License-Identifier: Apache-2.0
import Foundation
import Security

/// What Linux lacks: .../cryptokit/secureenclave. A key never leaves it: what an app keeps names a key of this process, as the chip's data
/// is of no use on another device.
public enum SecureEnclave {
    /// What the test decides. Of Apple's it can only be read.
    nonisolated(unsafe) public static var isAvailable = false

    public enum P256 {
        public enum Signing {
            public struct PrivateKey: Sendable {
                public let dataRepresentation: Data
                private let key: CryptoKit.P256.Signing.PrivateKey

                public init(accessControl: SecAccessControl) throws {
                    guard isAvailable, accessControl.flags.contains(.privateKeyUsage) else {
                        throw CryptoKitError.underlyingCoreCryptoError
                    }
                    key = CryptoKit.P256.Signing.PrivateKey()
                    dataRepresentation = Data(UUID().uuidString.utf8)
                    chip.withLock { chip.keys[dataRepresentation] = key }
                }

                public init(dataRepresentation: Data) throws {
                    guard let key = chip.withLock({ chip.keys[dataRepresentation] }) else { throw CryptoKitError.underlyingCoreCryptoError }
                    (self.key, self.dataRepresentation) = (key, dataRepresentation)
                }

                public var publicKey: CryptoKit.P256.Signing.PublicKey { key.publicKey }

                public func signature<D: DataProtocol>(for data: D) throws -> CryptoKit.P256.Signing.ECDSASignature {
                    try key.signature(for: data)
                }
            }
        }
    }
}

private let chip = Chip()

private final class Chip: @unchecked Sendable {
    private let lock = NSLock()
    var keys: [Data: P256.Signing.PrivateKey] = [:]

    func withLock<Result>(_ work: () -> Result) -> Result {
        lock.withLock(work)
    }
}
