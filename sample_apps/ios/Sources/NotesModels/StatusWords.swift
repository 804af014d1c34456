// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// One figure: what it is, and how much.
public struct Fact: Hashable, Sendable {
    public let label: String
    public let value: String
}

public struct Said: Equatable, Sendable {
    public let title: String
    public let text: String
    public var facts: [Fact] = []

    /// Of the run; nil: there is no bar to show.
    public var progress: Progress?

    public enum Progress: Equatable, Sendable {
        /// Nobody knows yet.
        case unknown
        case step(Int, of: Int)
    }
}

/// A status in words for somebody who has never heard of training.
public struct StatusWords: Sendable {
    private let words: Words

    public init(_ words: Words) {
        self.words = words
    }

    public func said(of status: LearningStatus, _ book: Notebook) -> Said {
        switch status {
        case .off:
            return Said(title: words(.statusOff), text: words(book.hasTaught ? .statusOffKeptText : .statusOffText))
        case .waiting:
            return Said(title: words(.statusWaiting), text: words(.statusWaitingText), facts: [notes(book)])
        case .paused(let pause, let failure):
            return Said(title: words(.statusPaused), text: words(Self.reason(pause)), facts: [notes(book)] + technical(failure))
        case .opening:
            return Said(title: words(.statusOpening), text: words(.statusOpeningText), progress: .unknown)
        case .learning(let step, let steps):
            return Said(
                title: words(.statusLearning), text: words(.statusLearningText, step, steps), facts: [notes(book)],
                progress: .step(step, of: steps))
        case .done:
            return Said(title: words(.statusDone), text: words(.statusDoneText), facts: [notes(book)])
        case .failed(let failure):
            return Said(title: words(.statusFailed), text: words(.statusFailedText), facts: technical(failure))
        }
    }

    /// What came of the last time.
    public func said(of last: LastTime) -> Said {
        let when = last.at.formatted(Date.FormatStyle(date: .abbreviated, time: .shortened, locale: words.locale))
        var facts = [
            Fact(label: words(.factWhen), value: when),
            Fact(label: words(.factSteps), value: number(last.totalSteps)),
        ]
        if let first = last.firstLoss, let end = last.lastLoss {
            facts.append(Fact(label: words(.factError), value: words(.factFromTo, decimal(first, digits: 2), decimal(end, digits: 2))))
        }
        facts.append(Fact(label: words(.factMemory), value: memory(last)))
        facts.append(Fact(label: words(.factWritten), value: bytes(last.bytesWritten)))
        facts.append(Fact(label: words(.factTime), value: time(last.seconds)))
        return Said(title: words(.lastTitle), text: outcome(last), facts: facts)
    }

    /// Why something that the user asked for did not happen.
    public func text(of problem: Problem) -> String {
        switch problem {
        case .busy: words(.problemBusy)
        case .other(let description): words(.problemOther, description)
        }
    }

    private func outcome(_ last: LastTime) -> String {
        switch last.accepted {
        case true?: words(.lastAccepted)
        case false?: "\(words(.lastRefused)) \(words(Self.reason(last.refusedBecause)))"
        case nil: words(.lastUnfinished)
        }
    }

    private static func reason(_ refused: RefusedBecause?) -> Word {
        switch refused {
        case .diverged?: .refusedDiverged
        case .nothingToJudgeBy?: .refusedNothingToJudgeBy
        case .noBetter?: .refusedNoBetter
        case .luck?: .refusedLuck
        case .tooSmall?: .refusedTooSmall
        case .generalWorse?: .refusedGeneralWorse
        case .behaviourWorse?: .refusedBehaviourWorse
        case .answersEndless?: .refusedAnswersEndless
        case .answersEmpty?: .refusedAnswersEmpty
        case .answersCopied?: .refusedAnswersCopied
        case .withdrawn?: .refusedWithdrawn
        default: .refusedUnknown
        }
    }

    private static func reason(_ pause: Pause) -> Word {
        switch pause {
        case .hot: .pauseHot
        case .powerSave: .pausePowerSave
        case .memory: .pauseMemory
        case .busy: .pauseBusy
        case .noExamples: .pauseNoExamples
        case .disk: .pauseDisk
        }
    }

    private func notes(_ book: Notebook) -> Fact {
        Fact(label: words(.factNotes), value: number(Int64(book.notes.count)))
    }

    private func technical(_ failure: String?) -> [Fact] {
        failure.map { [Fact(label: words(.factTechnical), value: $0)] } ?? []
    }

    private func memory(_ last: LastTime) -> String {
        guard let limit = last.limitBytes else { return words(.factMemoryNoLimit, bytes(last.addedBytes)) }
        return words(.factMemoryValue, bytes(last.addedBytes), bytes(limit))
    }

    private func time(_ seconds: Double) -> String {
        if seconds < 60 { return words(.timeSeconds, decimal(seconds, digits: 1)) }
        let (minutes, rest) = Int(seconds.rounded()).quotientAndRemainder(dividingBy: 60)
        return words(.timeMinutes, minutes, rest)
    }

    private func number(_ value: Int64) -> String {
        value.formatted(.number.locale(words.locale))
    }

    private func decimal(_ value: Double, digits: Int) -> String {
        value.formatted(.number.precision(.fractionLength(digits)).locale(words.locale))
    }

    private func bytes(_ value: Int64) -> String {
        value.formatted(.byteCount(style: .file).locale(words.locale))
    }
}
