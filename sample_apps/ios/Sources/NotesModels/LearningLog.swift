// SPDX-License-Identifier: Apache-2.0
import Bespoke
import BespokeBackground
import Foundation

/// What came of the times in which the model could learn. It outlives the process, which often learns without anybody looking.
public struct LearningLog: Codable, Equatable, Sendable {
    public var last: LastTime?

    /// Why learning waits for another time.
    public var pause: Pause?

    /// The last error, for a report.
    public var failure: String?

    public init() {}

    mutating func add(_ outcome: Outcome, device: DeviceState, at date: Date) {
        (pause, failure) = (nil, nil)
        switch outcome {
        case .judged(let report):
            last = LastTime(report, at: date)
        case .goesOn(let report):
            last = report.map { LastTime($0, at: date) } ?? last
            pause = Pause(device)
        case .waits(let error):
            pause = Pause(error)
            failure = error.description
        case .failed(let error):
            if (error as? BespokeError)?.kind == .dataError {
                pause = .noExamples
            }
            failure = String(describing: error)
        }
    }
}

/// The last call that learned something.
public struct LastTime: Codable, Equatable, Sendable {
    public var at: Date
    public var totalSteps: Int64

    /// Nil: the run goes on.
    public var accepted: Bool?
    public var refusedBecause: RefusedBecause?
    public var firstLoss: Double?
    public var lastLoss: Double?

    /// What learning added to what the app held.
    public var addedBytes: Int64
    public var limitBytes: Int64?
    public var bytesWritten: Int64
    public var seconds: Double

    public init(
        at: Date, totalSteps: Int64, accepted: Bool?, refusedBecause: RefusedBecause?, firstLoss: Double?, lastLoss: Double?,
        addedBytes: Int64, limitBytes: Int64?, bytesWritten: Int64, seconds: Double
    ) {
        self.at = at
        self.totalSteps = totalSteps
        self.accepted = accepted
        self.refusedBecause = refusedBecause
        self.firstLoss = firstLoss
        self.lastLoss = lastLoss
        self.addedBytes = addedBytes
        self.limitBytes = limitBytes
        self.bytesWritten = bytesWritten
        self.seconds = seconds
    }

    init(_ report: TrainReport, at date: Date) {
        let losses = report.losses.compactMap { $0 }
        self.init(
            at: date, totalSteps: report.totalSteps, accepted: report.accepted, refusedBecause: report.refusedBecause,
            firstLoss: losses.first, lastLoss: losses.last, addedBytes: max(0, report.memory.peakBytes - report.memory.idleBytes),
            limitBytes: report.memory.limitBytes, bytesWritten: report.bytesWritten, seconds: report.seconds)
    }
}

/// Why learning waits for another time.
public enum Pause: String, Codable, CaseIterable, Sendable {
    case hot, powerSave, memory, busy, noExamples, disk

    init?(_ device: DeviceState) {
        switch device {
        case let device where device.isLowPowerModeEnabled: self = .powerSave
        case let device where device.warmth == .critical: self = .hot
        default: return nil
        }
    }

    /// Of an error that `Outcome.waits` has.
    init(_ error: BespokeError) {
        switch error.kind {
        case .budgetExceeded: self = .memory
        case .diskFull: self = .disk
        default: self = .busy
        }
    }
}
