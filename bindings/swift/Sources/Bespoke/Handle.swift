// SPDX-License-Identifier: Apache-2.0
internal import CBespoke

/// A model of the core. Its address is a number that is never given twice, so a call with one that was closed is refused.
final class Handle: Sendable {
    private let address: UInt
    let waits: Waits

    init(_ model: OpaquePointer, _ waits: Waits) {
        address = UInt(bitPattern: model)
        self.waits = waits
    }

    deinit {
        bespoke_release(model)
    }

    var model: OpaquePointer { OpaquePointer(bitPattern: address)! }

    /// A call that may take long, cancelled with its task.
    func call<Result: Sendable>(
        deadline: Double = 0, onProgress: (@Sendable (CallProgress) -> Void)? = nil,
        _ call: @escaping @Sendable (OpaquePointer, UnsafePointer<bespoke_call>) throws -> Result
    ) async throws -> Result {
        try await blocking(waits: waits, deadline: deadline, onProgress: onProgress) { try call(self.model, $0) }
    }

    /// A call that may take long and gives a document.
    func document<Document: Decodable & Sendable>(
        deadline: Double = 0, onProgress: (@Sendable (CallProgress) -> Void)? = nil,
        _ call: @escaping @Sendable (OpaquePointer, Texts, UnsafePointer<bespoke_call>, TextPlace, ErrorPlace) -> bespoke_status
    ) async throws -> Document {
        try await self.call(deadline: deadline, onProgress: onProgress) { model, given in
            try decoded(withTexts { texts in try text { call(model, texts, given, $0, $1) } })
        }
    }

    /// A document of the store.
    func storedDocument<Document: Decodable & Sendable>(
        _ call: @escaping @Sendable (OpaquePointer, Texts, TextPlace, ErrorPlace) -> bespoke_status
    ) async throws -> Document {
        try await stored { [self] in
            try decoded(withTexts { texts in try text { call(model, texts, $0, $1) } })
        }
    }
}
