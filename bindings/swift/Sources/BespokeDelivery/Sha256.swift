// SPDX-License-Identifier: Apache-2.0
import CryptoKit
import Foundation

/// The sha256 of a file in hexadecimal.
func sha256(of file: URL) throws -> String {
    let handle = try FileHandle(forReadingFrom: file)
    defer { try? handle.close() }
    var hash = SHA256()
    while let piece = try handle.read(upToCount: 1 << 20), !piece.isEmpty {
        hash.update(data: piece)
    }
    return hexadecimal(hash.finalize())
}

/// The sha256 of bytes in hexadecimal.
package func sha256(of bytes: Data) -> String {
    var hash = SHA256()
    hash.update(data: bytes)
    return hexadecimal(hash.finalize())
}

private func hexadecimal(_ digest: some Sequence<UInt8>) -> String {
    digest.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
}
