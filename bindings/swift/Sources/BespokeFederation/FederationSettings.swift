// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// What takes part in a federation in the background.
public struct FederationSettings: Sendable {
    /// Of the processing task, as in `BGTaskSchedulerPermittedIdentifiers` of Info.plist.
    public var identifier: String

    /// The bundle's folder.
    public var bundle: URL

    /// The user's state folder.
    public var state: URL

    /// To the app's server.
    public var client: FederationClient

    /// Gives a one-time token of the app's own service. It is asked for once, before the first request of a device's key.
    public var token: @Sendable () async throws -> String

    /// How the model is opened. The threads are those of every model that the process has open.
    public var options: Options

    /// Most rounds to measure each time.
    public var rounds: Int

    /// Least seconds between the rounds of one time and those of the next one: a day.
    public var secondsApart: Double

    /// MB of 10^6 bytes of what the process may still take that are left alone.
    public var reserveMb: Double

    public init(
        identifier: String, bundle: URL, state: URL, client: FederationClient, token: @escaping @Sendable () async throws -> String,
        options: Options = Options(), rounds: Int = 1, secondsApart: Double = 86_400, reserveMb: Double = 50
    ) {
        self.identifier = identifier
        self.bundle = bundle
        self.state = state
        self.client = client
        self.token = token
        self.options = options
        self.rounds = rounds
        self.secondsApart = secondsApart
        self.reserveMb = reserveMb
    }
}
