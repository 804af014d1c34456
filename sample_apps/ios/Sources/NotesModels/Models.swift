// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Foundation

/// The user's model, and next to it the same bundle with a state that nothing is ever added to: what answers as the app came. Each is
/// opened when it is first needed. One use at a time, so nobody closes what another one uses.
public actor Models {
    private let bundle: URL
    private let usersState: URL
    private let untaughtState: URL
    private let options: Options
    private let turns = OneAtATime()
    private var users: PersonalModel?
    private var untaught: PersonalModel?

    public init(bundle: URL, usersState: URL, untaughtState: URL, options: Options) {
        self.bundle = bundle
        self.usersState = usersState
        self.untaughtState = untaughtState
        self.options = options
    }

    public func users<Result: Sendable>(_ use: @Sendable (PersonalModel) async throws -> Result) async throws -> Result {
        try await alone {
            let model = try await opened(users, usersState)
            users = model
            return try await use(model)
        }
    }

    public func untaught<Result: Sendable>(_ use: @Sendable (PersonalModel) async throws -> Result) async throws -> Result {
        try await alone {
            let model = try await opened(untaught, untaughtState)
            untaught = model
            return try await use(model)
        }
    }

    /// No model is open while `work` runs.
    public func closed(_ work: @Sendable () async throws -> Void) async throws {
        try await alone {
            try await users?.close()
            try await untaught?.close()
            (users, untaught) = (nil, nil)
            try await work()
        }
    }

    private func opened(_ model: PersonalModel?, _ state: URL) async throws -> PersonalModel {
        if let model { return model }
        return try await PersonalModel.open(bundle: bundle, state: state, options: options)
    }

    private func alone<Result>(_ use: () async throws -> Result) async throws -> Result {
        await turns.enter()
        do {
            let result = try await use()
            await turns.leave()
            return result
        } catch {
            await turns.leave()
            throw error
        }
    }
}
