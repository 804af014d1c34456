// SPDX-License-Identifier: Apache-2.0
import CryptoKit
import Foundation
import Security

/// What makes a device's key, an ES256 key, and signs with it.
public protocol KeyStore: Sendable {
    /// Makes a key. Returns what the device keeps of it, from which this store alone can use it.
    func makeKey() throws -> Data

    /// The public key as SubjectPublicKeyInfo in DER.
    func publicKey(of kept: Data) throws -> Data

    /// ECDSA on P-256 with SHA-256: r and s, 32 bytes each.
    func signature(of bytes: Data, by kept: Data) throws -> Data
}

/// Keys of the Secure Enclave. What the device keeps is encrypted by the chip and is of no use on another device.
public struct SecureEnclaveKeys: KeyStore {
    public init() {}

    /// Makes a key in the chip, which can be used as soon as the device was unlocked once since it started.
    public func makeKey() throws -> Data {
        // Rounds are carried in the background, while the device is locked.
        let since = kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly
        guard SecureEnclave.isAvailable, let access = SecAccessControlCreateWithFlags(nil, since, .privateKeyUsage, nil) else {
            throw FederationError(
                kind: .key, subject: "a device's key", got: "no Secure Enclave", expected: "one, as every iPhone has",
                nextStep: "Give DeviceKey(file:keys:) SoftwareKeys() on a machine without one.")
        }
        return try SecureEnclave.P256.Signing.PrivateKey(accessControl: access).dataRepresentation
    }

    /// Asks the chip for the public key.
    public func publicKey(of kept: Data) throws -> Data {
        try SecureEnclave.P256.Signing.PrivateKey(dataRepresentation: kept).publicKey.derRepresentation
    }

    /// Signs in the chip.
    public func signature(of bytes: Data, by kept: Data) throws -> Data {
        try SecureEnclave.P256.Signing.PrivateKey(dataRepresentation: kept).signature(for: bytes).rawRepresentation
    }
}

/// Keys without a chip, for machines that have no Secure Enclave. The key itself is what the device keeps.
public struct SoftwareKeys: KeyStore {
    public init() {}

    /// Makes a key of 32 bytes.
    public func makeKey() throws -> Data {
        P256.Signing.PrivateKey().rawRepresentation
    }

    /// The public key that follows from it.
    public func publicKey(of kept: Data) throws -> Data {
        try P256.Signing.PrivateKey(rawRepresentation: kept).publicKey.derRepresentation
    }

    /// Signs in this process.
    public func signature(of bytes: Data, by kept: Data) throws -> Data {
        try P256.Signing.PrivateKey(rawRepresentation: kept).signature(for: bytes).rawRepresentation
    }
}
