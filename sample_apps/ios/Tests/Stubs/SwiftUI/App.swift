// SPDX-License-Identifier: Apache-2.0

/// /app
@MainActor @preconcurrency public protocol App {
    associatedtype Body: Scene

    @SceneBuilder @MainActor @preconcurrency var body: Body { get }

    /// /app/init()
    @MainActor @preconcurrency init()
}

extension App {
    /// /app/main()
    @MainActor @preconcurrency public static func main() { neverRuns() }
}

/// /scene
@MainActor @preconcurrency public protocol Scene {
    associatedtype Body: Scene

    @SceneBuilder @MainActor @preconcurrency var body: Body { get }
}

extension Never: Scene {}

/// /scenebuilder
@resultBuilder public struct SceneBuilder {
    /// /scenebuilder/buildblock(_:)
    public static func buildBlock<Content: Scene>(_ content: Content) -> Content { content }
}

/// /windowgroup
public nonisolated struct WindowGroup<Content: View>: Scene {
    public var body: Never { neverRuns() }

    /// /windowgroup/init(content:)
    public init(@ViewBuilder content: () -> Content) {}
}

extension Scene {
    /// /scene/onchange(of:initial:_:)-7b6vh
    public nonisolated func onChange<V: Equatable>(of value: V, initial: Bool = false, _ action: @escaping () -> Void) -> some Scene {
        ChangedScene()
    }
}

nonisolated struct ChangedScene: Scene {
    var body: Never { neverRuns() }
}
