// SPDX-License-Identifier: Apache-2.0
import BespokeDelivery
import Foundation

/// What a device signs of each request, and the headers that carry it. The bytes are those of `bespoke.rules.signed_request` in Python.
enum SignedRequest {
    static let deviceHeader = "Bespoke-Device"
    static let counterHeader = "Bespoke-Counter"
    static let signatureHeader = "Bespoke-Signature"

    /// The largest whole number that every language's JSON and doubles hold.
    static let maxCounter: Int64 = 1 << 53 - 1

    /// The id of the device with this key, which is SubjectPublicKeyInfo in DER.
    static func device(of publicKey: Data) -> String {
        sha256(of: publicKey)
    }

    /// `path`: with the query. `round`: of the body's document, if it is one.
    static func bytes(method: String, path: String, body: Data, device: String, round: Int64?, counter: Int64) -> Data {
        let lines = ["bespoke-request-1", method, path, sha256(of: body), device, round.map(String.init) ?? "-", "\(counter)"]
        return Data(lines.map { "\($0)\n" }.joined().utf8)
    }

    /// A signature as its header has it: base64url without padding.
    static func header(of signature: Data) -> String {
        signature.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}
