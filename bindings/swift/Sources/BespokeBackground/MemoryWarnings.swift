// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Dispatch

#if os(Linux)
import BackgroundTasks  // a stand-in for what Linux lacks of Dispatch
#endif

extension DeviceState {
    /// An element each time the system warns that memory is short.
    public static var memoryWarnings: AsyncStream<Void> {
        AsyncStream { continuation in
            let source = DispatchSource.makeMemoryPressureSource(eventMask: [.warning, .critical], queue: .global())
            source.setEventHandler { continuation.yield() }
            continuation.onTermination = { _ in source.cancel() }
            source.resume()
        }
    }
}

extension PersonalModel {
    /// Gives back what the model keeps between calls, each time the system warns that memory is short, until its task is cancelled. A call
    /// that computes meanwhile goes on within its limit.
    public func trimOnMemoryWarnings() async {
        for await _ in DeviceState.memoryWarnings {
            try? await trim()
        }
    }
}
