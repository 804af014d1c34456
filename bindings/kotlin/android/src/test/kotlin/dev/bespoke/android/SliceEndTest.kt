// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import dev.bespoke.BespokeError
import dev.bespoke.TrainReportStoppedBecause
import java.io.IOException
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Which errors of a slice are tried again: what is of the state, the disk or this moment, and not what is of the bundle or the app. */
class SliceEndTest {
    private val pauses = mapOf(
        "ConfigError" to null, "MissingDependency" to null, "DataError" to Pause.ERROR, "PlanError" to null, "Unsupported" to null,
        "BundleError" to null, "BundleVersionError" to null, "SignatureError" to null, "GoldenMismatch" to null, "StateError" to Pause.ERROR,
        "StateLocked" to Pause.BUSY, "DiskFull" to Pause.DISK, "BudgetExceeded" to Pause.ERROR, "AdapterError" to Pause.ERROR,
        "Busy" to Pause.BUSY, "Cancelled" to Pause.ERROR, "Unavailable" to Pause.ERROR, "GenerationError" to null, "BespokeError" to null,
    )

    /** As the native side raises it, which no app can. */
    private fun raised(status: Int): BespokeError {
        val details = Class.forName("dev.bespoke.ErrorDetails").constructors.single { it.parameterCount == 4 }.newInstance("it", "that", "this", "Do so")
        val errorOf = Class.forName("dev.bespoke.BespokeErrorsKt").methods.single { it.name == "errorOf" }
        return errorOf.invoke(null, status, details) as BespokeError
    }

    @Test
    fun `each kind of error is tried again or is not`() {
        val errors = (2..20).map(::raised)  // 20: a status that this version does not know
        assertEquals(pauses.keys, errors.map { it.javaClass.simpleName }.toSet())
        for (error in errors) {
            val name = error.javaClass.simpleName
            val end = endBy(error)
            assertEquals(pauses[name], end.pause, name)
            if (end.pause != Pause.BUSY) assertEquals(error.message, end.failure, name)
        }
        assertEquals(Pause.DISK, endBy(CopyFailed("no room", IOException())).pause)
        assertEquals(SliceEnd(failure = "no method"), endBy(IllegalStateException("no method")))
    }

    @Test
    fun `an error with very many words fits into what WorkManager takes`() {
        val said = endBy(IllegalStateException("語".repeat(20_000))).failure!!
        assertTrue(said.toByteArray().size < 10_240)
    }

    @Test
    fun `errors are counted one after the other, and a slice that trained begins the count again`() {
        val error = SliceEnd(pause = Pause.ERROR, failure = "no such version")
        val twice = Kept(ladder = PlanLadder(1, 1), slice = 2000, crashes = 2).after(error).after(error)
        assertEquals(Kept(PlanLadder(1, 1), pause = Pause.ERROR, failure = "no such version", failures = 2, crashes = 2), twice)
        assertEquals(2, twice.after(SliceEnd(pause = Pause.BUSY)).failures)
        assertEquals(null, twice.after(SliceEnd(pause = Pause.BUSY)).failure)
        assertEquals(2, twice.after(SliceEnd(pause = Pause.DISK, failure = "full")).failures)
        val last = LastSlice(
            at = 1, run = 1, method = "mesp", steps = 1, totalSteps = 1, stoppedBecause = TrainReportStoppedBecause.DEADLINE,
            accepted = null, refusedBecause = null, gain = null, firstLoss = 1.0, lastLoss = 1.0, idleBytes = 1, addedBytes = 1, limitBytes = null,
            plannedForBytes = null, bytesWritten = 1, seconds = 1.0, isLastResort = false,
        )
        assertEquals(0, twice.after(SliceEnd(last, rungs = 4)).failures)
    }
}
