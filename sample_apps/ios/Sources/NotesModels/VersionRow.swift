// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// A version in words.
public struct VersionRow: Identifiable, Equatable, Sendable {
    public let id: Int64
    public let title: String
    public let detail: String
}

extension VersionsModel {
    /// The newest first, which answers.
    public func rows(_ words: Words) -> [VersionRow] {
        (versions ?? []).enumerated().map { place, version in
            let accepted = try? Date(version.acceptedAt, strategy: .iso8601)
            let date = accepted?.formatted(Date.FormatStyle(date: .abbreviated, time: .omitted, locale: words.locale))
            return VersionRow(
                id: version.id, title: words(place == 0 ? .versionAnswers : .versionName, Int(version.id)),
                detail: words(.versionDetail, date ?? version.acceptedAt, Int(version.step)))
        }
    }
}
