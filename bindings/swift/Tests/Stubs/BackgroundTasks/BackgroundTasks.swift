// SPDX-License-Identifier: Apache-2.0
// A stand-in for Apple's framework on Linux: the signatures of developer.apple.com/documentation/backgroundtasks, over the rules of
// System.swift.
import Dispatch
import Foundation

open class BGTask: NSObject {
    public let identifier: String
    let ended: @Sendable (Bool) -> Void
    private let lock = NSLock()
    private var handler: (() -> Void)?

    init(_ identifier: String, ended: @escaping @Sendable (Bool) -> Void) {
        self.identifier = identifier
        self.ended = ended
    }

    public var expirationHandler: (() -> Void)? {
        get { lock.withLock { handler } }
        set { lock.withLock { handler = newValue } }
    }

    public func setTaskCompleted(success: Bool) {
        ended(success)
    }
}

public final class BGProcessingTask: BGTask {}

public final class BGContinuedProcessingTask: BGTask, ProgressReporting {
    public let progress = Progress(totalUnitCount: 0)
    public private(set) var title = ""
    public private(set) var subtitle = ""

    public func updateTitle(_ title: String, subtitle: String) {
        self.title = title
        self.subtitle = subtitle
    }
}

open class BGTaskRequest: NSObject {
    public let identifier: String
    public var earliestBeginDate: Date?

    init(of identifier: String) {
        self.identifier = identifier
    }
}

public final class BGProcessingTaskRequest: BGTaskRequest {
    public var requiresNetworkConnectivity = false
    public var requiresExternalPower = false

    public init(identifier: String) {
        super.init(of: identifier)
    }
}

public final class BGContinuedProcessingTaskRequest: BGTaskRequest {
    public enum SubmissionStrategy: Int, Sendable {
        case fail, queue
    }

    public var title: String
    public var subtitle: String
    public var strategy = SubmissionStrategy.queue

    public init(identifier: String, title: String, subtitle: String) {
        self.title = title
        self.subtitle = subtitle
        super.init(of: identifier)
    }
}

open class BGTaskScheduler: NSObject, @unchecked Sendable {
    public struct Error: Swift.Error {
        public enum Code: Int, Sendable {
            case unavailable = 1
            case tooManyPendingTaskRequests, notPermitted, immediateRunIneligible
        }

        public let code: Code
    }

    public static let shared = BGTaskScheduler()

    public let system = System()

    @discardableResult
    public func register(
        forTaskWithIdentifier identifier: String, using queue: DispatchQueue?, launchHandler: @escaping (BGTask) -> Void
    ) -> Bool {
        system.register(identifier, launchHandler)
    }

    public func submit(_ taskRequest: BGTaskRequest) throws {
        try system.submit(taskRequest)
    }

    public func cancel(taskRequestWithIdentifier identifier: String) {
        system.cancel(identifier)
    }
}
