// SPDX-License-Identifier: Apache-2.0
import Bespoke
internal import CBespoke
internal import CBespokeMLX

extension EngineTable {
    /// Runs bundles of the target `mlx` with the MLX that the app links through mlx-swift.
    ///
    /// It replaces the process's handler of MLX's errors, so that they end a call of a model. On Linux it was run by hand, over mlx-c.
    /// Nobody has linked it to mlx-swift or run it on Apple's devices.
    public static var mlx: EngineTable {
        EngineTable {
            let table = UnsafeMutablePointer<bespoke_engine>.allocate(capacity: 1)
            defer { table.deallocate() }
            let message = UnsafeMutableBufferPointer<CChar>.allocate(capacity: 512)
            defer { message.deallocate() }
            guard bespoke_engine_module(table, message.baseAddress!, message.count) == 0 else {
                throw EngineError.unavailable(String(cString: message.baseAddress!))
            }
            return table.pointee
        }
    }
}
