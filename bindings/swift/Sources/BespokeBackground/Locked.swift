// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A value that threads share.
package final class Locked<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var locked: Value

    package init(_ value: Value) {
        locked = value
    }

    package func withLock<Result>(_ change: (inout Value) -> Result) -> Result {
        lock.withLock { change(&locked) }
    }
}
