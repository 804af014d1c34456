// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// What learns in the background, and where.
public struct BackgroundSettings: Sendable {
    /// Of the processing task, as in `BGTaskSchedulerPermittedIdentifiers` of Info.plist.
    public var identifier: String

    /// The bundle's folder.
    public var bundle: URL

    /// The user's state folder.
    public var state: URL

    /// How the model is opened. The threads are those of every model that the process has open.
    public var options: Options

    /// What each slice of training does. Its `seconds` are ``sliceSeconds``.
    public var training: Training

    /// After so many seconds training commits and looks whether it may go on.
    public var sliceSeconds: Double

    /// MB of 10^6 bytes of what the process may still take that are left alone.
    public var reserveMb: Double

    public init(
        identifier: String, bundle: URL, state: URL, options: Options = Options(), training: Training = Training(),
        sliceSeconds: Double = 60, reserveMb: Double = 50
    ) {
        self.identifier = identifier
        self.bundle = bundle
        self.state = state
        self.options = options
        self.training = training
        self.sliceSeconds = sliceSeconds
        self.reserveMb = reserveMb
    }
}
