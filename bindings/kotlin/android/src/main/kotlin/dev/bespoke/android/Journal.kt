// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.android

import android.content.Context
import android.os.UserManager
import android.util.AtomicFile
import dev.bespoke.RefusedBecause
import dev.bespoke.TrainReport
import dev.bespoke.TrainReportStoppedBecause
import java.io.File
import java.io.FileNotFoundException
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.update
import kotlinx.serialization.Serializable
import kotlinx.serialization.json.Json

/** Where a user's model and what is kept about its training lie: never in a backup, and not before the first unlock. */
internal class Place(context: Context, name: String) {
    private val folder: File
    val state: File
    val journal: Journal

    init {
        require(name.matches(Regex("[A-Za-z0-9_-]{1,64}"))) { "the name of a state is letters, digits, _ and -: got '$name'" }
        requireUnlocked(context)
        folder = File(context.noBackupFilesDir, "bespoke/$name")
        state = File(folder, "state")
        journal = Journal(AtomicFile(File(folder, "training.json")))
    }

    /** To open the state in. Who only asks how learning is makes no folder: it may have been forgotten. */
    fun made(): Place = apply { folder.mkdirs() }

    /** Everything that was learned and everything that it was learned from. */
    fun delete(): Boolean = folder.deleteRecursively().also { Journal.changes.update { it + 1 } }
}

/** Nothing of the user's can be read before the first unlock after the device was started. */
internal fun requireUnlocked(context: Context) {
    check(context.getSystemService(UserManager::class.java).isUserUnlocked) {
        "The user's files: got a device that was not unlocked since it started; expected an unlocked one. Try again later."
    }
}

/**
 * What the last slice did, for the app to show.
 *
 * @property at when it ended, in ms since the epoch
 * @property run its number
 * @property method by which it trained
 * @property steps of this slice
 * @property totalSteps of the run so far
 * @property stoppedBecause why it ended
 * @property accepted whether what was learned answers now; null: not judged yet
 * @property refusedBecause why it does not
 * @property gain nats a token by which the loss on the user's examples is better than it was
 * @property firstLoss of the first step of this slice
 * @property lastLoss of its last step
 * @property idleBytes what the training process held before
 * @property addedBytes what training took at most on top of that
 * @property limitBytes what it was allowed to take on top; null: anything
 * @property plannedForBytes the budget that its plans were made for, one of the bundle's
 * @property bytesWritten to the flash
 * @property seconds that it took
 * @property isLastResort it trained by forward passes only, because every other plan took too much memory
 */
@Serializable
data class LastSlice(
    val at: Long,
    val run: Long,
    val method: String,
    val steps: Long,
    val totalSteps: Long,
    val stoppedBecause: TrainReportStoppedBecause,
    val accepted: Boolean?,
    val refusedBecause: RefusedBecause?,
    val gain: Double?,
    val firstLoss: Double?,
    val lastLoss: Double?,
    val idleBytes: Long,
    val addedBytes: Long,
    val limitBytes: Long?,
    val plannedForBytes: Long?,
    val bytesWritten: Long,
    val seconds: Double,
    val isLastResort: Boolean,
) {
    internal companion object {
        fun of(report: TrainReport, at: Long, isLastResort: Boolean): LastSlice {
            val memory = report.memory
            return LastSlice(
                at, report.run, report.method, report.steps, report.totalSteps, report.stoppedBecause, report.accepted, report.refusedBecause,
                report.gain, report.losses.firstOrNull(), report.losses.lastOrNull(), memory.idleBytes,
                (memory.peakBytes - memory.idleBytes).coerceAtLeast(0), memory.limitBytes?.minus(memory.idleBytes), memory.plannedForBytes,
                report.bytesWritten, report.seconds, isLastResort,
            )
        }
    }
}

/**
 * What is known between slices.
 *
 * @property slice when the slice began that has not said how it ended, in ms since the epoch; null: there is none
 * @property seenExit when the newest end of the training process was that has been looked at, in ms since the epoch
 * @property pause why the last slice ended before its time
 * @property failure what the error said that ended it, where an error did
 * @property failures slices that ended by an error ([Pause.ERROR]), one after the other
 * @property crashes of the training process, one after the other
 * @property scheduled what is learned in the background
 */
@Serializable
internal data class Kept(
    val ladder: PlanLadder = PlanLadder(),
    val slice: Long? = null,
    val seenExit: Long = 0,
    val last: LastSlice? = null,
    val pause: Pause? = null,
    val failure: String? = null,
    val failures: Int = 0,
    val crashes: Int = 0,
    val scheduled: Learning? = null,
) {
    /**
     * Before a slice: after the ends of the training process that nobody has looked at yet; null: the system does not tell them. Only an end
     * within a slice counts: what is done to a process that waits for work says nothing of plans.
     */
    fun after(exits: List<Exits.Exit>?): Kept {
        val seen = copy(slice = null, seenExit = exits?.lastOrNull()?.at ?: seenExit)
        return when {
            slice == null -> seen
            exits == null -> seen.copy(ladder = ladder.killed())
            else -> exits.filter { it.at >= slice }.fold(seen) { kept, exit ->
                when (exit.means) {
                    ExitMeans.MEMORY_KILL -> kept.copy(ladder = kept.ladder.killed())
                    ExitMeans.CRASH -> kept.copy(crashes = kept.crashes + 1)
                    ExitMeans.OTHER_END -> kept
                }
            }
        }
    }

    /** After a slice; null: its process died, and why is looked at before the next one. */
    fun after(end: SliceEnd?): Kept {
        if (end == null) return copy(pause = null, failure = null)
        val at = if (end.rungs > 0) ladder.within(end.rungs) else ladder
        val next = when {
            end.tookTooMuch -> at.killed()
            end.failure != null || end.pause in SAYS_NOTHING_OF_PLANS -> at
            else -> at.clean()
        }
        val errors = if (end.pause == Pause.ERROR) failures + 1 else if (end.last != null) 0 else failures
        return copy(
            ladder = next, slice = null, last = end.last ?: last, pause = end.pause, failure = end.failure, failures = errors,
            crashes = if (end.failure == null) 0 else crashes,
        )
    }
}

private val SAYS_NOTHING_OF_PLANS = setOf(Pause.MEMORY, Pause.BUSY, Pause.NO_EXAMPLES, Pause.DISK, Pause.ERROR)

/** [Kept] in a file that is replaced whole; of the app's process alone. A file that cannot be read is as none. */
internal class Journal(private val file: AtomicFile) {
    fun read(): Kept = synchronized(alone) {  // a reader of an AtomicFile deletes what is being written
        try {
            Json.decodeFromString(Kept.serializer(), file.readFully().decodeToString())
        } catch (_: FileNotFoundException) {
            Kept()
        } catch (_: IllegalArgumentException) {  // no JSON, or what an older version of the app took and this one refuses
            Kept()
        }
    }

    fun update(change: (Kept) -> Kept): Kept = synchronized(alone) {
        val kept = change(read())
        val stream = file.startWrite()
        try {
            stream.write(Json.encodeToString(Kept.serializer(), kept).toByteArray())
            file.finishWrite(stream)
        } catch (problem: Throwable) {
            file.failWrite(stream)
            throw problem
        }
        changes.update { it + 1 }
        kept
    }

    internal companion object {
        private val alone = Any()

        /** How often any of them was changed. */
        val changes = MutableStateFlow(0)
    }
}
