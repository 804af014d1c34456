// SPDX-License-Identifier: Apache-2.0

/// Where learning is.
public enum LearningStatus: Equatable, Sendable {
    case off

    /// The system gives it time when the phone charges.
    case waiting

    /// It tries again when the system gives it time.
    case paused(Pause, failure: String? = nil)

    /// It began, and the run has no step yet.
    case opening

    /// As of the last commit.
    case learning(step: Int, steps: Int)

    /// A run has ended, and nothing was written since.
    case done

    /// An error ended it, and waiting does not help.
    case failed(String)
}
