// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Words in the language of the user.
public struct Words: Sendable {
    /// Of numbers and dates.
    public let locale: Locale
    private let format: @Sendable (Word) -> String

    /// - Parameter format: the text of a word, with the places of its arguments.
    public init(locale: Locale = .current, format: @escaping @Sendable (Word) -> String) {
        self.locale = locale
        self.format = format
    }

    /// The words in the app's bundle.
    public static let ofApp = Words { Bundle.main.localizedString(forKey: $0.rawValue, value: nil, table: nil) }

    public func callAsFunction(_ word: Word, _ arguments: any WordArgument...) -> String {
        // A text without arguments goes through the format too, because a plural is found there.
        String(format: format(word), locale: locale, arguments: arguments.map(\.formatted))
    }
}

/// What a text has places for: `%@` for a text, `%lld` for a number.
public protocol WordArgument {
    var formatted: any CVarArg { get }
}

extension String: WordArgument {
    public var formatted: any CVarArg { NSString(string: self) }
}

extension Int: WordArgument {
    public var formatted: any CVarArg { self }
}
