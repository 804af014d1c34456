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
    return hash.finalize().map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
}
