// SPDX-License-Identifier: Apache-2.0
import Foundation

/// What Linux lacks: .../cryptokit/sha256, by FIPS 180-4.
public struct SHA256 {
    private var state: [UInt32] = [
        0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,
    ]
    private var rest: [UInt8] = []
    private var count: UInt64 = 0

    public init() {}

    public mutating func update<D: DataProtocol>(data: D) {
        count += UInt64(data.count)
        rest += Array(data)
        let whole = rest.count / 64 * 64
        for block in stride(from: 0, to: whole, by: 64) {
            add(rest[block..<block + 64])
        }
        rest.removeFirst(whole)
    }

    public func finalize() -> [UInt8] {
        var last = self
        let zeros = (119 - rest.count % 64) % 64
        let bits = (0..<8).map { UInt8(truncatingIfNeeded: (count * 8) >> (56 - 8 * $0)) }
        last.update(data: [0x80] + [UInt8](repeating: 0, count: zeros) + bits)
        return last.state.flatMap { word in (0..<4).map { UInt8(truncatingIfNeeded: word >> (24 - 8 * UInt32($0))) } }
    }

    private mutating func add(_ block: ArraySlice<UInt8>) {
        var w = [UInt32](repeating: 0, count: 64)
        for t in 0..<16 {
            let i = block.startIndex + 4 * t
            w[t] = UInt32(block[i]) << 24 | UInt32(block[i + 1]) << 16 | UInt32(block[i + 2]) << 8 | UInt32(block[i + 3])
        }
        for t in 16..<64 {
            let s0 = turned(w[t - 15], 7) ^ turned(w[t - 15], 18) ^ w[t - 15] >> 3
            let s1 = turned(w[t - 2], 17) ^ turned(w[t - 2], 19) ^ w[t - 2] >> 10
            w[t] = w[t - 16] &+ s0 &+ w[t - 7] &+ s1
        }
        var (a, b, c, d, e, f, g, h) = (state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7])
        for t in 0..<64 {
            let t1 = h &+ (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) &+ (e & f ^ ~e & g) &+ constants[t] &+ w[t]
            let t2 = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) &+ (a & b ^ a & c ^ b & c)
            (h, g, f, e, d, c, b, a) = (g, f, e, d &+ t1, c, b, a, t1 &+ t2)
        }
        for (i, value) in [a, b, c, d, e, f, g, h].enumerated() {
            state[i] &+= value
        }
    }
}

private func turned(_ x: UInt32, _ n: UInt32) -> UInt32 { x >> n | x << (32 - n) }

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
private let constants: [UInt32] = (2...311).filter { n in !(2..<n).contains { n % $0 == 0 } }.map { prime in
    let root = cbrt(Double(prime))
    return UInt32((root - root.rounded(.down)) * 4_294_967_296)
}
