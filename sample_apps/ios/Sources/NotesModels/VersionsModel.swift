// SPDX-License-Identifier: Apache-2.0
import Bespoke
import Observation

/// What was accepted, and the ways back: one version, or to the beginning.
@MainActor @Observable public final class VersionsModel {
    /// The newest first, which answers; nil until they were read.
    public private(set) var versions: [Version]?
    public private(set) var hasTaught = false
    public private(set) var isWorking = false
    public var problem: Problem?

    @ObservationIgnored private let parts: Parts

    public init(_ parts: Parts) {
        self.parts = parts
    }

    public func refresh() async {
        do {
            versions = try await parts.learner.versions().reversed()
            hasTaught = try parts.notebook.read().hasTaught
        } catch {
            problem = Problem(error)
        }
    }

    @discardableResult public func rollBack() -> Task<Void, Never> {
        act { try await $0.learner.rollBack() }
    }

    @discardableResult public func forgetEverything() -> Task<Void, Never> {
        act { try await $0.learner.forgetEverything() }
    }

    private func act(_ action: @escaping @Sendable (Parts) async throws -> Void) -> Task<Void, Never> {
        isWorking = true
        return Task { [parts] in
            do {
                try await action(parts)
            } catch {
                problem = Problem(error)
            }
            await refresh()
            isWorking = false
        }
    }
}
