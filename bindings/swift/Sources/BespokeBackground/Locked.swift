// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A value that threads share.
final class Locked<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var locked: Value

    init(_ value: Value) {
        locked = value
    }

    func withLock<Result>(_ change: (inout Value) -> Result) -> Result {
        lock.withLock { change(&locked) }
    }
}
