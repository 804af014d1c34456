// SPDX-License-Identifier: Apache-2.0
internal import CBespoke

/// Where a call is.
public struct CallProgress: Sendable {
    /// What begins now; of a step: what has ended.
    public enum Phase: Int32, Sendable {
        /// Files are opened and memory is taken.
        case open

        /// Examples are looked at, before and after.
        case judge

        /// One step of a run has ended.
        case step

        /// What was learned is written.
        case commit

        /// An answer is made, or its prompt is read.
        case decode

        /// Files are copied, or examples are tokenized again.
        case store
    }

    /// What begins, or of a step what has ended.
    public let phase: Phase

    /// Of the run: how many are done; of a prompt that is read: tokens; 0 where there is neither.
    public let step: Int64

    /// Of the run: how many are planned; of a prompt that is read: its tokens; 0 where there is neither.
    public let steps: Int64

    /// Of the step that has ended.
    public let loss: Double?

    /// Bytes of the process, as the system judges it.
    public let footprintBytes: Int64

    /// Nil for a phase of a newer core, which is passed over.
    init?(_ progress: bespoke_progress) {
        guard let phase = Phase(rawValue: progress.phase.rawValue) else { return nil }
        self.phase = phase
        step = progress.step
        steps = progress.steps
        loss = progress.loss.isNaN ? nil : progress.loss
        footprintBytes = progress.footprint_bytes
    }
}
