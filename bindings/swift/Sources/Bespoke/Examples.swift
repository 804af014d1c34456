// SPDX-License-Identifier: Apache-2.0
internal import CBespoke

/// The user's examples. Tokenized when added, never while training. All of it also works while a call computes.
public struct Examples: Sendable {
    let handle: Handle

    /// Keeps an example. The same `id` with the same content changes nothing; without one it is the sha256 of the example.
    /// `mustKnow`: it is never held out to judge by.
    @discardableResult
    public func add(_ example: Example, id: String? = nil, mustKnow: Bool = false) async throws -> AddedExample {
        let json = encoded(example)
        return try await handle.document { model, texts, call, text, error in
            var given = givenExample(json, id, mustKnow, texts)
            return bespoke_add_example(model, &given, call, text, error)
        }
    }

    /// Keeps several examples at once, each under the sha256 of its JSON: all of them, or none where one is refused.
    @discardableResult
    public func addAll(_ examples: [Example], mustKnow: Bool = false) async throws -> [AddedExample] {
        let words = examples.map { encoded($0) }
        return try await handle.document { model, texts, call, text, error in
            let given = UnsafeMutablePointer<bespoke_example>.allocate(capacity: words.count)
            defer { given.deallocate() }
            for (place, json) in words.enumerated() {
                given[place] = givenExample(json, nil, mustKnow, texts)
            }
            let pointers = words.indices.map { Optional(UnsafePointer(given + $0)) }
            return bespoke_add_examples(model, pointers, pointers.count, call, text, error)
        }
    }

    /// At most `most` (nil: all) in the order in which they were added, behind the one of the id `after`, or from the first one on.
    public func list(after: String? = nil, most: Int64? = nil) async throws -> [ExampleInfo] {
        try await handle.storedDocument { model, texts, text, error in
            bespoke_list_examples(model, texts(after), most ?? 0, text, error)
        }
    }

    /// How many there are.
    public func count() async throws -> Int64 {
        try await stored { [handle] in
            var count: Int64 = 0
            try checked { bespoke_count_examples(handle.model, &count, $0) }
            return count
        }
    }

    /// Deletes an example at once, with every adapter that saw it; stops a run that uses it.
    @discardableResult
    public func forget(_ id: String) async throws -> Forgotten {
        try await handle.document { model, texts, call, text, error in bespoke_forget_example(model, texts(id), call, text, error) }
    }
}

private func givenExample(_ json: String, _ id: String?, _ mustKnow: Bool, _ texts: Texts) -> bespoke_example {
    var given = bespoke_example()
    given.struct_size = MemoryLayout<bespoke_example>.size
    given.json = texts(json)
    given.id = texts(id)
    given.use = texts(mustKnow ? "train" : nil)
    return given
}
