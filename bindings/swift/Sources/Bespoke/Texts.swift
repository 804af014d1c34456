// SPDX-License-Identifier: Apache-2.0
internal import CBespoke
import Foundation

typealias ErrorPlace = UnsafeMutablePointer<UnsafeMutablePointer<bespoke_error>?>
typealias TextPlace = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>

/// Texts and bytes as the C API takes them, valid during `withTexts`.
final class Texts {
    private var copies: [UnsafeMutableRawBufferPointer] = []

    deinit {
        for copy in copies {
            copy.deallocate()
        }
    }

    /// Empty for nil.
    func callAsFunction(_ text: String?) -> bespoke_text {
        given(text.map { Array($0.utf8) } ?? [])
    }

    func callAsFunction(_ bytes: Data) -> bespoke_text {
        given(bytes)
    }

    private func given(_ bytes: some Collection<UInt8>) -> bespoke_text {
        guard !bytes.isEmpty else { return bespoke_text() }
        let copy = copied(bytes)
        return bespoke_text(data: copy.bindMemory(to: CChar.self).baseAddress, size: copy.count)
    }

    func copied(_ bytes: some Collection<UInt8>) -> UnsafeMutableRawBufferPointer {
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
        copy.copyBytes(from: bytes)
        copies.append(copy)
        return copy
    }
}

func withTexts<Result>(_ call: (Texts) throws -> Result) rethrows -> Result {
    let texts = Texts()
    return try withExtendedLifetime(texts) { try call(texts) }
}

/// The text that a call gives, which is freed.
func text(_ call: (TextPlace, ErrorPlace) -> bespoke_status) throws -> String {
    var text: UnsafeMutablePointer<CChar>?
    try checked { call(&text, $0) }
    defer { bespoke_free(text) }
    return text.map { String(cString: $0) } ?? "null"
}

func decoded<Document: Decodable>(_ json: String) throws -> Document {
    do {
        return try JSONDecoder().decode(Document.self, from: Data(json.utf8))
    } catch {
        throw BespokeError(
            kind: .internalError, subject: "a document of the core", got: "\(error)", expected: "\(Document.self)",
            nextStep: "Use the library that this package was made for.")
    }
}

func encoded(_ value: some Encodable) -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    // A number that JSON does not have is for the core to refuse.
    encoder.nonConformingFloatEncodingStrategy = .convertToString(positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
    return String(decoding: try! encoder.encode(value), as: UTF8.self)
}
