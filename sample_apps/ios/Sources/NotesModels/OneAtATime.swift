// SPDX-License-Identifier: Apache-2.0

/// Lets uses in one after the other, in the order in which they came. An actor alone would let the next one in at each `await`.
actor OneAtATime {
    private var isTaken = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    func enter() async {
        if isTaken {
            await withCheckedContinuation { waiting.append($0) }
        }
        isTaken = true
    }

    func leave() {
        if waiting.isEmpty {
            isTaken = false
        } else {
            waiting.removeFirst().resume()
        }
    }
}
