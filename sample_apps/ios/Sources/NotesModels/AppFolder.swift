// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Where the app keeps its files.
enum AppFolder {
    /// A folder in Application Support that is in no backup. It is made where there is none.
    // until StateFolder
    static func url(named name: String) throws -> URL {
        let support = try FileManager.default.url(for: .applicationSupportDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
        let folder = support.appending(path: name)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        #if canImport(Darwin)
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        var place = folder
        try place.setResourceValues(values)
        #endif
        return folder
    }
}
