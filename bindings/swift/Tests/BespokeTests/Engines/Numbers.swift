// SPDX-License-Identifier: Apache-2.0
@testable import Bespoke

/// A tensor of the interpreter: dense, its elements as Double, each rounded to what its kind holds.
struct Numbers {
    /// In the order in which they win where an operator takes two.
    enum Kind: Int, Comparable {
        case bool, int64, float32

        static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }
    }

    var shape: [Int]
    let kind: Kind
    let values: [Double]

    init(_ shape: [Int], _ kind: Kind, _ values: [Double]) {
        self.shape = shape
        self.kind = kind
        self.values = kind == .float32 ? values.map { Double(Float($0)) } : values
    }

    init(_ bytes: UnsafeRawBufferPointer, _ type: TensorType) {
        func all<Element>(_ type: Element.Type, _ number: (Element) -> Double) -> [Double] {
            stride(from: 0, to: bytes.count, by: MemoryLayout<Element>.size).map {
                number(bytes.loadUnaligned(fromByteOffset: $0, as: type))
            }
        }
        shape = type.shape
        switch type.element {
        case .float32: (kind, values) = (.float32, all(Float.self) { Double($0) })
        case .float16: (kind, values) = (.float32, all(Float16.self) { Double($0) })
        case .uint8: (kind, values) = (.int64, all(UInt8.self) { Double($0) })
        case .int64: (kind, values) = (.int64, all(Int64.self) { Double($0) })
        case .int32: (kind, values) = (.int64, all(Int32.self) { Double($0) })
        }
    }

    func write(to bytes: UnsafeMutableRawBufferPointer, _ element: TensorType.Element) throws {
        for (place, value) in values.enumerated() {
            switch element {
            case .float32: bytes.storeBytes(of: Float(value), toByteOffset: place * 4, as: Float.self)
            case .int64: bytes.storeBytes(of: Int64(value), toByteOffset: place * 8, as: Int64.self)
            case .int32: bytes.storeBytes(of: Int32(value), toByteOffset: place * 4, as: Int32.self)
            case .float16, .uint8: throw EngineError.failed("a result of \(element)")
            }
        }
    }

    // MARK: - Forms

    func dimension(_ number: Int) -> Int { number < 0 ? number + shape.count : number }

    func viewed(_ sizes: [Int]) -> Numbers {
        let known = sizes.filter { $0 >= 0 }.reduce(1, *)
        var made = self
        made.shape = sizes.map { $0 < 0 ? values.count / known : $0 }
        return made
    }

    func transposed(_ one: Int, _ other: Int) -> Numbers {
        var order = Array(shape.indices)
        order.swapAt(dimension(one), dimension(other))
        let strides = Numbers.strides(of: shape)
        return gathered(order.map { shape[$0] }, order.map { strides[$0] })
    }

    func expanded(to sizes: [Int]) -> Numbers {
        guard sizes != shape else { return self }
        let own = Array(repeating: 1, count: sizes.count - shape.count) + shape
        let strides = zip(own, Numbers.strides(of: own)).map { $0 == 1 ? 0 : $1 }
        return gathered(zip(sizes, own).map { $0 < 0 ? $1 : $0 }, strides)
    }

    /// Elements [first, first + count) of a dimension.
    func cut(_ dimension: Int, _ first: Int, _ count: Int) -> Numbers {
        let (outer, inner) = (shape[..<dimension].reduce(1, *), shape[(dimension + 1)...].reduce(1, *))
        var sizes = shape
        sizes[dimension] = count
        let rows = (0..<outer).map { values[(($0 * shape[dimension] + first) * inner)...].prefix(count * inner) }
        return Numbers(sizes, kind, Array(rows.joined()))
    }

    static func joined(_ all: [Numbers], _ dimension: Int) -> Numbers {
        let outer = all[0].shape[..<dimension].reduce(1, *)
        var sizes = all[0].shape
        sizes[dimension] = all.map { $0.shape[dimension] }.reduce(0, +)
        let rows = (0..<outer).flatMap { row in
            all.flatMap { $0.values[(row * $0.values.count / outer)...].prefix($0.values.count / outer) }
        }
        return Numbers(sizes, all[0].kind, rows)
    }

    private static func strides(of shape: [Int]) -> [Int] {
        var strides = Array(repeating: 1, count: shape.count)
        for place in shape.indices.dropLast().reversed() {
            strides[place] = strides[place + 1] * shape[place + 1]
        }
        return strides
    }

    private func gathered(_ sizes: [Int], _ strides: [Int]) -> Numbers {
        var places = [0]
        for (size, stride) in zip(sizes, strides) {
            places = places.flatMap { place in (0..<size).map { place + $0 * stride } }
        }
        return Numbers(sizes, kind, places.map { values[$0] })
    }

    // MARK: - Elements

    func mapped(_ kind: Kind? = nil, _ element: (Double) -> Double) -> Numbers {
        Numbers(shape, kind ?? self.kind, values.map(element))
    }

    func with(_ other: Numbers, _ kind: Kind? = nil, _ element: (Double, Double) -> Double) -> Numbers {
        let rank = max(shape.count, other.shape.count)
        let sizes = (0..<rank).map { place in
            max(Numbers.size(shape, place, rank), Numbers.size(other.shape, place, rank))
        }
        let (one, two) = (expanded(to: sizes), other.expanded(to: sizes))
        return Numbers(sizes, kind ?? max(self.kind, other.kind), zip(one.values, two.values).map(element))
    }

    private static func size(_ shape: [Int], _ place: Int, _ rank: Int) -> Int {
        let own = place - (rank - shape.count)
        return own < 0 ? 1 : shape[own]
    }

    /// The rows of the last dimension.
    var rows: [ArraySlice<Double>] {
        let size = shape.last ?? 1
        return stride(from: 0, to: values.count, by: size).map { values[$0..<$0 + size] }
    }

    /// [n, k] times [k, m], by pointers: an array's subscript takes ten times as long in a debug build.
    func times(_ other: Numbers) -> Numbers {
        let (n, k, m) = (shape[0], shape[1], other.shape[1])
        let made = [Double](unsafeUninitializedCapacity: n * m) { made, count in
            made.initialize(repeating: 0)
            count = n * m
            let results = made.baseAddress!
            values.withUnsafeBufferPointer { one in
                other.values.withUnsafeBufferPointer { two in
                    for row in 0..<n {
                        for place in 0..<k {
                            Numbers.add(one[row * k + place], two.baseAddress! + place * m, m, to: results + row * m)
                        }
                    }
                }
            }
        }
        return Numbers([n, m], .float32, made)
    }

    private static func add(_ factor: Double, _ row: UnsafePointer<Double>, _ count: Int, to sum: UnsafeMutablePointer<Double>) {
        var (row, sum) = (row, sum)
        let end = row + count
        while row < end {
            sum.pointee += factor * row.pointee
            row += 1
            sum += 1
        }
    }
}
