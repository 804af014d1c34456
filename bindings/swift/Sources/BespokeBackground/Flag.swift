// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A truth that threads share.
final class Flag: @unchecked Sendable {
    private let lock = NSLock()
    private var set = false

    var value: Bool {
        get { lock.withLock { set } }
        set { lock.withLock { set = newValue } }
    }
}
