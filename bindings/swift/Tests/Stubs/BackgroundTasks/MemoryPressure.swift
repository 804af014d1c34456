// SPDX-License-Identifier: Apache-2.0
import Dispatch

/// What Linux lacks of Dispatch: .../dispatch/dispatchsource/makememorypressuresource(eventmask:queue:).
public protocol DispatchSourceMemoryPressure: DispatchSourceProtocol, Sendable {}

extension DispatchSource: DispatchSourceMemoryPressure {}

extension DispatchSource {
    public struct MemoryPressureEvent: OptionSet, Sendable {
        public let rawValue: UInt

        public init(rawValue: UInt) {
            self.rawValue = rawValue
        }

        public static let warning = MemoryPressureEvent(rawValue: 2)
        public static let critical = MemoryPressureEvent(rawValue: 4)
    }

    public static func makeMemoryPressureSource(
        eventMask: MemoryPressureEvent, queue: DispatchQueue? = nil
    ) -> any DispatchSourceMemoryPressure {
        let source = makeUserDataAddSource(queue: queue) as! DispatchSource
        BGTaskScheduler.shared.system.warned.append(source)
        return source
    }
}

/// Sources that are told of a warning.
final class Warned: @unchecked Sendable {
    private let queue = DispatchQueue(label: "sources of memory pressure")
    private var sources: [DispatchSource] = []

    func append(_ source: DispatchSource) {
        queue.sync { sources.append(source) }
    }

    func warn() {
        queue.sync {
            sources.removeAll(where: \.isCancelled)
            for source in sources {
                source.add(data: 1)
            }
        }
    }
}
