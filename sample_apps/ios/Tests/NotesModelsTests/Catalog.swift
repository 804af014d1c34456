// SPDX-License-Identifier: Apache-2.0
import Foundation

@testable import NotesModels

/// The String Catalog of the app. On a device the system reads what Xcode makes of it.
struct Catalog: Decodable {
    struct Text: Decodable {
        let localizations: [String: Localization]
    }

    struct Localization: Decodable {
        let stringUnit: Unit
        let substitutions: [String: Substitution]?
    }

    struct Substitution: Decodable {
        let argNum: Int
        let formatSpecifier: String
        let variations: [String: [String: Form]]
    }

    struct Form: Decodable {
        let stringUnit: Unit
    }

    struct Unit: Decodable {
        let state: String
        let value: String
    }

    let sourceLanguage: String
    let strings: [String: Text]

    static let ofApp: Catalog = {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        let file = folder.appending(path: "../../Sources/NotesApp/Resources/Localizable.xcstrings")
        return try! JSONDecoder().decode(Catalog.self, from: Data(contentsOf: file))
    }()

    /// The text of a word, in which a plural is its form `other`: which form a number takes is for the system to say.
    func format(_ key: String, _ language: String) -> String {
        guard let found = strings[key]?.localizations[language] else { return key }
        var format = found.stringUnit.value
        for (name, substitution) in found.substitutions ?? [:] {
            let other = substitution.variations["plural"]?["other"]?.stringUnit.value ?? ""
            let number = "%\(substitution.argNum)$\(substitution.formatSpecifier)"
            format = format.replacingOccurrences(of: "%#@\(name)@", with: other.replacingOccurrences(of: "%arg", with: number))
        }
        return format
    }

    func words(_ language: String) -> Words {
        Words(locale: Locale(identifier: language == "de" ? "de_DE" : "en_US")) { format($0.rawValue, language) }
    }
}
