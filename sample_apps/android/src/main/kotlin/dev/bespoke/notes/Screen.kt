// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.app.Dialog
import android.os.Bundle
import android.view.View
import android.widget.TextView
import androidx.annotation.LayoutRes
import androidx.annotation.StringRes
import androidx.appcompat.app.AppCompatActivity
import androidx.lifecycle.Lifecycle
import androidx.lifecycle.lifecycleScope
import androidx.lifecycle.repeatOnLifecycle
import com.google.android.material.dialog.MaterialAlertDialogBuilder
import dev.bespoke.Busy
import dev.bespoke.StateLocked
import dev.bespoke.Unavailable
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.launch

/** A screen with its name on top and a way back. What it shows follows the app's parts, so that a rotation loses nothing. */
abstract class Screen(@LayoutRes layout: Int, @param:StringRes private val name: Int) : AppCompatActivity(layout) {
    private var asking: Dialog? = null

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        setTitle(name)  // what TalkBack says when the screen opens
        findViewById<TextView>(R.id.title)?.setText(name)
        findViewById<View>(R.id.back)?.setOnClickListener { finish() }
    }

    protected fun <T> follow(flow: Flow<T>, show: suspend (T) -> Unit) {
        lifecycleScope.launch { repeatOnLifecycle(Lifecycle.State.STARTED) { flow.collect { show(it) } } }
    }

    /** Done to its end also where the screen goes; an error is shown where it is still there. */
    protected fun act(block: suspend () -> Unit, then: suspend () -> Unit = {}) {
        val done = parts.begin(block)
        lifecycleScope.launch {
            try {
                done.await()
                then()
            } catch (left: CancellationException) {
                throw left
            } catch (problem: Exception) {
                ask(MaterialAlertDialogBuilder(this@Screen).setMessage(words(problem)).setPositiveButton(R.string.ok, null))
            }
        }
    }

    protected fun confirm(@StringRes title: Int, @StringRes text: Int, @StringRes yes: Int, block: () -> Unit) {
        ask(
            MaterialAlertDialogBuilder(this)
                .setTitle(title)
                .setMessage(text)
                .setNegativeButton(R.string.cancel, null)
                .setPositiveButton(yes) { _, _ -> block() },
        )
    }

    private fun ask(dialog: MaterialAlertDialogBuilder) {
        asking?.dismiss()
        asking = dialog.show()
    }

    override fun onDestroy() {
        asking?.dismiss()
        super.onDestroy()
    }

    protected fun words(problem: Throwable): String = when (problem) {
        is StateLocked, is Unavailable, is Busy -> getString(R.string.problem_busy)
        else -> getString(R.string.problem_other, problem.message.orEmpty())
    }

    /** From here on what stands side by side is too narrow to read. */
    protected val hasLargeFont: Boolean get() = resources.configuration.fontScale >= LARGE

    private companion object {
        const val LARGE = 1.3f
    }
}
