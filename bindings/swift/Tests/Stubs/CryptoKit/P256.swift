// SPDX-License-Identifier: Apache-2.0
import CLibcrypto
import Foundation

/// What Linux lacks: .../cryptokit/p256/signing, as far as the package calls it, by OpenSSL.
public enum P256 {
    public enum Signing {
        public struct PrivateKey: Sendable {
            public let rawRepresentation: Data

            public init() {
                let key = Key()
                precondition(EC_KEY_generate_key(key.pointer) == 1)
                var bytes = [UInt8](repeating: 0, count: 32)
                precondition(EC_KEY_priv2oct(key.pointer, &bytes, 32) == 32)
                rawRepresentation = Data(bytes)
            }

            public init<D: ContiguousBytes>(rawRepresentation: D) throws {
                self.rawRepresentation = rawRepresentation.withUnsafeBytes { Data($0) }
                _ = try Key(self.rawRepresentation)
            }

            public var publicKey: PublicKey {
                let key = try! Key(rawRepresentation)
                var bytes = [UInt8](repeating: 0, count: Int(i2d_EC_PUBKEY(key.pointer, nil)))
                bytes.withUnsafeMutableBufferPointer { buffer in
                    var place = buffer.baseAddress
                    _ = i2d_EC_PUBKEY(key.pointer, &place)
                }
                return PublicKey(derRepresentation: Data(bytes))
            }

            public func signature<D: DataProtocol>(for data: D) throws -> ECDSASignature {
                let key = try Key(rawRepresentation)
                var hash = SHA256()
                hash.update(data: data)
                let digest = hash.finalize()
                guard let made = ECDSA_do_sign(digest, Int32(digest.count), key.pointer) else {
                    throw CryptoKitError.underlyingCoreCryptoError
                }
                defer { ECDSA_SIG_free(made) }
                var halves = [UInt8](repeating: 0, count: 64)
                halves.withUnsafeMutableBufferPointer { buffer in
                    _ = BN_bn2binpad(ECDSA_SIG_get0_r(made), buffer.baseAddress, 32)
                    _ = BN_bn2binpad(ECDSA_SIG_get0_s(made), buffer.baseAddress! + 32, 32)
                }
                return ECDSASignature(rawRepresentation: Data(halves))
            }
        }

        public struct PublicKey: Sendable {
            public let derRepresentation: Data
        }

        public struct ECDSASignature: Sendable {
            public let rawRepresentation: Data
        }
    }
}

public enum CryptoKitError: Error {
    case incorrectKeySize
    case underlyingCoreCryptoError
}

/// A key of OpenSSL.
private final class Key {
    let pointer: OpaquePointer

    init() {
        pointer = EC_KEY_new_by_curve_name(Int32(BESPOKE_NID_P256))!
    }

    /// Of the private number alone: the public key is that number times the generator.
    convenience init(_ raw: Data) throws {
        self.init()
        guard raw.count == 32, EC_KEY_oct2priv(pointer, Array(raw), 32) == 1 else { throw CryptoKitError.incorrectKeySize }
        let group = EC_KEY_get0_group(pointer)
        let point = EC_POINT_new(group)
        defer { EC_POINT_free(point) }
        guard EC_POINT_mul(group, point, EC_KEY_get0_private_key(pointer), nil, nil, nil) == 1,
            EC_KEY_set_public_key(pointer, point) == 1
        else { throw CryptoKitError.underlyingCoreCryptoError }
    }

    deinit {
        EC_KEY_free(pointer)
    }
}
