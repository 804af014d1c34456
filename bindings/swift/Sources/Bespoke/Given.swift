// SPDX-License-Identifier: Apache-2.0
internal import CBespoke
import Foundation

// Settings as the C API takes them.

/// As the system's calls take it: without the slash that ends the URL of a folder.
func path(of url: URL) -> String {
    url.withUnsafeFileSystemRepresentation { $0.map { String(cString: $0) } ?? url.absoluteString }
}

extension Options {
    func given(_ texts: Texts) throws -> bespoke_options {
        var given = bespoke_options()
        given.struct_size = MemoryLayout<bespoke_options>.size
        given.memory_mb = memoryMb ?? 0
        given.pin_sha256 = texts(trust.pinSha256)
        given.threads = Int32(clamping: threads ?? 0)
        given.require_authenticated = trust.requireAuthenticated ? 1 : 0
        given.cache = texts(cache.map(path))
        given.limit_counts = .BESPOKE_LIMIT_SINCE_CALL
        if let key = trust.publicKey {
            guard key.count == 32 else {
                throw BespokeError(
                    kind: .configError, subject: "the public key", got: "\(key.count) bytes", expected: "32, an ed25519 key",
                    nextStep: "Give the key's bytes, not their hexadecimal digits.")
            }
            given.public_key = UnsafePointer(texts.copied(key).bindMemory(to: UInt8.self).baseAddress)
        }
        return given
    }

    /// Calls `open` with the table of the engine, or with nil.
    func opening<Result>(_ open: (UnsafePointer<bespoke_engine>?) throws -> Result) throws -> Result {
        guard let engine else { return try open(nil) }
        return try engine.opening(open)
    }
}

extension Training {
    func given(_ texts: Texts) -> bespoke_training {
        var given = bespoke_training()
        given.struct_size = MemoryLayout<bespoke_training>.size
        given.method = texts(method)
        given.run_steps = runSteps ?? 0
        given.most_steps = mostSteps ?? 0
        given.seed = seed ?? 0
        given.has_seed = seed == nil ? 0 : 1
        given.settings = texts(settings.map { encoded($0) })
        given.new_run = newRun ? 1 : 0
        return given
    }
}

extension Generation {
    func given(_ texts: Texts) -> bespoke_generation {
        var given = bespoke_generation()
        given.struct_size = MemoryLayout<bespoke_generation>.size
        given.max_tokens = maxTokens ?? 0
        given.temperature = temperature
        given.top_p = topP ?? 0
        given.top_k = topK ?? 0
        given.seed = seed
        given.stop_texts = texts(stopTexts.isEmpty ? nil : encoded(stopTexts))
        given.notes = notes ? 1 : 0
        return given
    }
}
