// SPDX-License-Identifier: Apache-2.0
// Written by tools/write_schemas.py from bindings/schema.
package dev.bespoke

/** Base of all errors of the SDK. */
open class BespokeError internal constructor(private val details: ErrorDetails) : RuntimeException(details.toString()) {
    /** What it is about. */
    val subject: String get() = details.subject

    /** What was found. */
    val got: String get() = details.got

    /** What should be. */
    val expected: String get() = details.expected

    /** What to do. */
    val nextStep: String get() = details.nextStep
}

/** Settings that cannot work. Several problems are reported together by `from_problems`. */
class ConfigError internal constructor(details: ErrorDetails) : BespokeError(details)

/** An optional package is not installed, or a library that a program needs is not there. */
class MissingDependency internal constructor(details: ErrorDetails) : BespokeError(details)

/** Training data or an example that cannot be used. `subject` names file and row where there are any. */
class DataError internal constructor(details: ErrorDetails) : BespokeError(details)

/** A plan that breaks a rule: used before defined, shapes that disagree, stored twice. */
class PlanError internal constructor(details: ErrorDetails) : BespokeError(details)

/** A target cannot compile a graph; `subject` names graph and operator. */
class Unsupported internal constructor(details: ErrorDetails) : BespokeError(details)

/** A bundle that is damaged, hostile or of another version. */
class BundleError internal constructor(details: ErrorDetails) : BespokeError(details)

/** A bundle in a format that this reader does not know. */
class BundleVersionError internal constructor(details: ErrorDetails) : BespokeError(details)

/** A bundle whose signature is missing, wrong or by another key. */
class SignatureError internal constructor(details: ErrorDetails) : BespokeError(details)

/** The runtime does not reproduce the bundle's golden vectors. */
class GoldenMismatch internal constructor(details: ErrorDetails) : BespokeError(details)

/** A state folder that is damaged, of another version or of another base model. */
class StateError internal constructor(details: ErrorDetails) : BespokeError(details)

/** Another trainer holds the state. */
class StateLocked internal constructor(details: ErrorDetails) : BespokeError(details)

/** The disk has no room for a commit, the scratch file or packed weights. What was committed stays. */
class DiskFull internal constructor(details: ErrorDetails) : BespokeError(details)

/** The next load or call would take more memory than the limit. Raised before it. */
class BudgetExceeded internal constructor(details: ErrorDetails) : BespokeError(details)

/** An adapter that does not fit the model: other shapes, other rank, other base. */
class AdapterError internal constructor(details: ErrorDetails) : BespokeError(details)

/** Another call computes with this model. Only one can at a time. */
class Busy internal constructor(details: ErrorDetails) : BespokeError(details)

/** The call was cancelled, or reached its deadline, before there was anything to report. */
class Cancelled internal constructor(details: ErrorDetails) : BespokeError(details)

/**
 * The state, bundle or device cannot be used now: it is busy, its files are closed, or it lacks what a program
 * needs.
 */
class Unavailable internal constructor(details: ErrorDetails) : BespokeError(details)

/** A prompt or a sampling setting that cannot be answered. */
class GenerationError internal constructor(details: ErrorDetails) : BespokeError(details)

/** Of a status that this version does not know yet: the base of all. */
internal fun errorOf(status: Int, details: ErrorDetails): BespokeError = when (status) {
    2 -> ConfigError(details)
    3 -> MissingDependency(details)
    4 -> DataError(details)
    5 -> PlanError(details)
    6 -> Unsupported(details)
    7 -> BundleError(details)
    8 -> BundleVersionError(details)
    9 -> SignatureError(details)
    10 -> GoldenMismatch(details)
    11 -> StateError(details)
    12 -> StateLocked(details)
    13 -> DiskFull(details)
    14 -> BudgetExceeded(details)
    15 -> AdapterError(details)
    16 -> Busy(details)
    17 -> Cancelled(details)
    18 -> Unavailable(details)
    19 -> GenerationError(details)
    else -> BespokeError(details)
}
