// SPDX-License-Identifier: Apache-2.0
import CryptoKit
import Foundation
import Testing

@testable import BespokeFederation

/// What all languages sign: bindings/schema/signed_request_vectors.json.
@Suite struct SignedRequestTests {
    private struct Vectors: Decodable {
        struct Headers: Decodable {
            let device, counter, signature: String
        }
        struct Key: Decodable {
            let publicKey: Data
            let device: String
        }
        struct Request: Decodable {
            let id, method, path: String
            let body: Data
            let device: String
            let round: Int64?
            let counter: Int64
            let signed: Data
            let sha256: String
        }
        struct Signature: Decodable {
            let raw: Data
            let header: String
        }

        let headers: Headers
        let maxCounter: Int64
        let keys: [Key]
        let requests: [Request]
        let signatures: [Signature]
    }

    private let vectors: Vectors = {
        let repository = (0..<5).reduce(URL(fileURLWithPath: #filePath)) { url, _ in url.deletingLastPathComponent() }
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        let file = repository.appending(path: "bindings/schema/signed_request_vectors.json")
        return try! decoder.decode(Vectors.self, from: Data(contentsOf: file))
    }()

    @Test func theSameBytesAreSignedAsInPython() {
        #expect(vectors.requests.count >= 8)
        for one in vectors.requests {
            let bytes = SignedRequest.bytes(
                method: one.method, path: one.path, body: one.body, device: one.device, round: one.round, counter: one.counter)
            #expect(bytes == one.signed, "\(one.id)")
            #expect(hexadecimal(bytes) == one.sha256, "\(one.id)")
        }
    }

    @Test func keysAndHeadersAreThoseOfPython() {
        #expect(SignedRequest.deviceHeader == vectors.headers.device)
        #expect(SignedRequest.counterHeader == vectors.headers.counter)
        #expect(SignedRequest.signatureHeader == vectors.headers.signature)
        #expect(SignedRequest.maxCounter == vectors.maxCounter)
        for key in vectors.keys {
            #expect(SignedRequest.device(of: key.publicKey) == key.device)
        }
        for signature in vectors.signatures {
            #expect(SignedRequest.header(of: signature.raw) == signature.header)
        }
    }
}
