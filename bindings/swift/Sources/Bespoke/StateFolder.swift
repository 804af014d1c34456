// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The folder of a user's state.
public enum StateFolder {
    /// Finds the folder of this name, or makes it. It lies in the app's Application Support, or in the container of an app group, where
    /// the app's extensions can open it too.
    ///
    /// Its files can be read as soon as the device was unlocked once since it started, because learning goes on while it is locked. They
    /// are in no backup: what a model learned from its user stays on the device.
    ///
    /// - Parameter name: One for each user of the app, and no path.
    /// - Throws: ``BespokeError/Kind/configError`` for a name that is a path, and for an app group that the app is not a member of.
    public static func url(named name: String, appGroup: String? = nil) throws -> URL {
        guard !name.isEmpty, !name.hasPrefix("."), !name.contains("/") else {
            throw BespokeError(
                kind: .configError, subject: "the name of a state folder", got: "\"\(name)\"",
                expected: "a name without \"/\" that does not begin with a dot", nextStep: "Take the identifier of your user.")
        }
        var folder = try container(of: appGroup).appending(path: "bespoke").appending(path: name)
        try FileManager.default.createDirectory(
            at: folder, withIntermediateDirectories: true,
            attributes: [.protectionKey: FileProtectionType.completeUntilFirstUserAuthentication])
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        try folder.setResourceValues(values)
        return folder
    }

    private static func container(of appGroup: String?) throws -> URL {
        let files = FileManager.default
        guard let appGroup else {
            return try files.url(for: .applicationSupportDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
        }
        #if canImport(Darwin)
        if let container = files.containerURL(forSecurityApplicationGroupIdentifier: appGroup) { return container }
        #endif
        throw BespokeError(
            kind: .configError, subject: "the app group \"\(appGroup)\"", got: "no container",
            expected: "a group of the app's entitlement com.apple.security.application-groups",
            nextStep: "Add the group to the app's capabilities, or leave it out.")
    }
}
