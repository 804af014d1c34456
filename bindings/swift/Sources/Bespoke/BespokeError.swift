// SPDX-License-Identifier: Apache-2.0
internal import CBespoke
import Foundation

/// An error of the SDK: what it is about, what was found, what should be, and what to do.
///
/// A call whose task was cancelled throws `CancellationError` instead.
public struct BespokeError: Error, Hashable, Sendable {
    /// What kind of error it is.
    public let kind: Kind

    /// What it is about.
    public let subject: String

    /// What was found.
    public let got: String

    /// What should be.
    public let expected: String

    /// What to do.
    public let nextStep: String
}

extension BespokeError: CustomStringConvertible, LocalizedError {
    public var description: String {
        "\(subject): got \(got), expected \(expected). \(nextStep)"
    }

    public var errorDescription: String? { description }

    public var recoverySuggestion: String? { nextStep }
}

/// Calls a function of the C API, which fills an error where it fails.
func checked(_ call: (ErrorPlace) -> bespoke_status) throws {
    var error: UnsafeMutablePointer<bespoke_error>?
    let status = call(&error)
    defer { bespoke_error_free(error) }
    if status != .BESPOKE_OK {
        throw BespokeError(status, error?.pointee)
    }
}

extension BespokeError {
    fileprivate init(_ status: bespoke_status, _ error: bespoke_error?) {
        kind = Kind(rawValue: status.rawValue)
        guard let error else {
            (subject, got, expected, nextStep) = ("a call", "status \(status.rawValue)", "none", "")
            return
        }
        let words = error.references.map { ErrorWords(references: String(cString: $0)) }
        subject = words?.subject ?? String(cString: error.subject)
        got = words?.got ?? String(cString: error.got)
        expected = words?.expected ?? String(cString: error.expected)
        nextStep = words?.nextStep ?? String(cString: error.next_step)
    }
}

/// The parts of an error that name verbs or settings, in Swift's words. The core says them in C's, and gives the pieces of these parts.
/// Only a piece that refers to a name is put into words: a text is never parsed, so what a user wrote stays as it is.
struct ErrorWords: Decodable {
    let subject, got, expected, nextStep: String?

    init(references: String) {
        self = (try? JSONDecoder().decode(Self.self, from: Data(references.utf8))) ?? Self()
    }

    private init() {
        (subject, got, expected, nextStep) = (nil, nil, nil, nil)
    }

    enum CodingKeys: String, CodingKey {
        case subject, got, expected
        case nextStep = "next_step"
    }

    init(from decoder: any Decoder) throws {
        let parts = try decoder.container(keyedBy: CodingKeys.self)
        func words(_ key: CodingKeys) throws -> String? {
            try parts.decodeIfPresent([Piece].self, forKey: key).map(joined)
        }
        subject = try words(.subject)
        got = try words(.got)
        expected = try words(.expected)
        nextStep = try words(.nextStep)
    }
}

private enum Piece: Decodable {
    case text(String)
    case verb(String, arguments: [String])
    case setting(String, value: JSONValue?)

    enum CodingKeys: String, CodingKey {
        case verb = "do"
        case arguments, setting, value
    }

    init(from decoder: any Decoder) throws {
        guard let piece = try? decoder.container(keyedBy: CodingKeys.self) else {
            self = .text(try decoder.singleValueContainer().decode(String.self))
            return
        }
        if let verb = try piece.decodeIfPresent(String.self, forKey: .verb) {
            self = .verb(verb, arguments: try piece.decodeIfPresent([String].self, forKey: .arguments) ?? [])
        } else {
            self = .setting(
                try piece.decode(String.self, forKey: .setting), value: try piece.decodeIfPresent(JSONValue.self, forKey: .value))
        }
    }

    var words: String {
        switch self {
        case .text(let text):
            return text
        case .verb(let verb, let arguments):
            return "\(callOfVerb[verb] ?? "call \(verb)")(\(arguments.joined(separator: ", ")))"
        case .setting(let name, let value):
            let shown = nameOfSetting[name] ?? name
            return value.map { "\(shown): \(encoded($0))" } ?? shown
        }
    }
}

/// A part that begins with a call begins with a capital letter.
private func joined(_ pieces: [Piece]) -> String {
    let words = pieces.map(\.words).joined()
    guard case .verb? = pieces.first, let first = words.first else { return words }
    return first.uppercased() + words.dropFirst()
}
