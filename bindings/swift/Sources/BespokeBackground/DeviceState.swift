// SPDX-License-Identifier: Apache-2.0
import Foundation

#if canImport(os)
import os
#endif

/// What the device says about itself while a model learns.
public struct DeviceState: Sendable {
    /// How warm it is. Each is ``Foundation/ProcessInfo/ThermalState`` of the same name.
    public enum Warmth: Sendable {
        case nominal, fair, serious, critical
    }

    /// How warm it is.
    public var warmth: Warmth

    /// Whether the user saves power.
    public var isLowPowerModeEnabled: Bool

    /// Bytes that the process may still take before the system ends it; nil: it does not say.
    public var availableBytes: Int64?

    public init(warmth: Warmth = .nominal, isLowPowerModeEnabled: Bool = false, availableBytes: Int64? = nil) {
        self.warmth = warmth
        self.isLowPowerModeEnabled = isLowPowerModeEnabled
        self.availableBytes = availableBytes
    }

    /// What learning does now.
    var advice: Advice {
        if isLowPowerModeEnabled || warmth == .critical { return .stop }
        return .goOn(share: warmth == .serious ? 0.25 : warmth == .fair ? 0.5 : 1)
    }

    enum Advice: Equatable {
        /// Commit and wait for better times.
        case stop

        /// Compute for this share of the time.
        case goOn(share: Double)
    }
}

extension DeviceState {
    /// This device, now. A system that says nothing is taken as cool.
    public static var current: DeviceState {
        #if canImport(Darwin)
        let info = ProcessInfo.processInfo
        let warmth: Warmth =
            switch info.thermalState {
            case .nominal: .nominal
            case .fair: .fair
            case .serious: .serious
            default: .critical
            }
        #if os(macOS)
        let available: Int64? = nil
        #else
        let available = Int64(os_proc_available_memory())
        #endif
        return DeviceState(warmth: warmth, isLowPowerModeEnabled: info.isLowPowerModeEnabled, availableBytes: available)
        #else
        return DeviceState()
        #endif
    }
}
