// SPDX-License-Identifier: Apache-2.0
// What Linux lacks: .../security/secaccesscontrolcreatewithflags(_:_:_:_:), as far as the package calls it.

/// When a key may be used, and for what.
public final class SecAccessControl: Sendable {
    public let protection: String
    public let flags: SecAccessControlCreateFlags

    init(_ protection: String, _ flags: SecAccessControlCreateFlags) {
        (self.protection, self.flags) = (protection, flags)
    }
}

public struct SecAccessControlCreateFlags: OptionSet, Sendable {
    public let rawValue: UInt

    public init(rawValue: UInt) {
        self.rawValue = rawValue
    }

    public static let userPresence = SecAccessControlCreateFlags(rawValue: 1 << 0)
    public static let privateKeyUsage = SecAccessControlCreateFlags(rawValue: 1 << 30)
}

public let kSecAttrAccessibleWhenUnlockedThisDeviceOnly = "akpu"
public let kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly = "cku"

// swift-format-ignore: AlwaysUseLowerCamelCase
public func SecAccessControlCreateWithFlags(
    _ allocator: AnyObject?, _ protection: String, _ flags: SecAccessControlCreateFlags,
    _ error: UnsafeMutablePointer<Unmanaged<AnyObject>?>?
) -> SecAccessControl? {
    SecAccessControl(protection, flags)
}
