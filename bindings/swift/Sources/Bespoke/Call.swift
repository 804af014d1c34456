// SPDX-License-Identifier: Apache-2.0
internal import CBespoke
import Foundation

/// How long calls wait for others.
struct Waits: Sendable {
    /// For the turn of a call that computes, in seconds; less than 0: however long it takes.
    let turn: Double

    /// For another process that uses the state, in seconds; less than 0: however long it takes.
    let otherProcess: Double
}

/// Runs a call that may take long on a thread of its own, so that none of the few threads on which tasks run is blocked. Where the task
/// is cancelled, the call ends at its next instruction, in a committed state.
func blocking<Result: Sendable>(
    waits: Waits,
    deadline: Double = 0,
    onProgress: (@Sendable (CallProgress) -> Void)? = nil,
    _ call: @escaping @Sendable (UnsafePointer<bespoke_call>) throws -> Result
) async throws -> Result {
    let token = try CancelToken()
    do {
        return try await withTaskCancellationHandler {
            try await onOwnThread {
                try withCall(token, waits, deadline, onProgress, call)
            }
        } onCancel: {
            token.set()
        }
    } catch let error as BespokeError where error.kind == .cancelled && Task.isCancelled {
        throw CancellationError()
    }
}

/// Runs a call of the store that cannot be cancelled on a thread of its own, since it may wait for the disk.
func stored<Result: Sendable>(_ call: @escaping @Sendable () throws -> Result) async throws -> Result {
    try await onOwnThread(call)
}

private func onOwnThread<Result: Sendable>(_ call: @escaping @Sendable () throws -> Result) async throws -> Result {
    let quality = qualityOfService(of: Task.currentPriority)
    let work = Work(call)
    return try await withCheckedThrowingContinuation { waiting in
        let thread = Thread {
            work.finish(waiting)
        }
        thread.name = "bespoke"
        thread.stackSize = 1 << 20  // a thread of Apple's systems has half of it
        thread.qualityOfService = quality
        thread.start()
    }
}

/// A call that lets go of what it holds before its result is given, and of the result as it is given. Else the thread would be the last
/// to hold a model that its app has let go of, and would close it while the app opens the state again.
private final class Work<Result: Sendable>: @unchecked Sendable {
    private var call: (@Sendable () throws -> Result)?

    init(_ call: @escaping @Sendable () throws -> Result) {
        self.call = call
    }

    func finish(_ waiting: CheckedContinuation<Result, any Error>) {
        do {
            let result = try call!()
            call = nil
            waiting.resume(returning: consume result)
        } catch {
            call = nil
            waiting.resume(throwing: error)
        }
    }
}

private func qualityOfService(of priority: TaskPriority) -> QualityOfService {
    switch priority {
    case .background: .background
    case .utility, .low: .utility
    case .userInitiated, .high: .userInitiated
    default: .default
    }
}

/// Ends the calls that have it.
private final class CancelToken: Sendable {
    private let address: UInt

    init() throws {
        guard let token = bespoke_cancel_new() else {
            throw BespokeError(kind: .budgetExceeded, subject: "a call", got: "no memory", expected: "a few bytes", nextStep: "Try again.")
        }
        address = UInt(bitPattern: token)
    }

    deinit {
        bespoke_cancel_free(pointer)
    }

    var pointer: OpaquePointer? { OpaquePointer(bitPattern: address) }

    func set() {
        bespoke_cancel_set(pointer)
    }
}

private func withCall<Result>(
    _ token: CancelToken, _ waits: Waits, _ deadline: Double, _ onProgress: (@Sendable (CallProgress) -> Void)?,
    _ call: (UnsafePointer<bespoke_call>) throws -> Result
) throws -> Result {
    let receiver = onProgress.map(Receiver.init)
    return try withExtendedLifetime((token, receiver)) {
        var given = bespoke_call()
        given.struct_size = MemoryLayout<bespoke_call>.size
        given.cancel = token.pointer
        given.deadline_seconds = deadline
        given.wait_seconds = waits.turn
        given.busy_seconds = waits.otherProcess
        if let receiver {
            given.context = Unmanaged.passUnretained(receiver).toOpaque()
            given.progress = { context, progress in
                let receiver = Unmanaged<Receiver>.fromOpaque(context!).takeUnretainedValue()
                if let known = CallProgress(progress.pointee) {
                    receiver.onProgress(known)
                }
                return 0
            }
        }
        return try call(&given)
    }
}

private final class Receiver {
    let onProgress: @Sendable (CallProgress) -> Void

    init(onProgress: @escaping @Sendable (CallProgress) -> Void) {
        self.onProgress = onProgress
    }
}
