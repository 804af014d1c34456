// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.notes

import android.graphics.Color
import android.view.View
import android.view.ViewGroup
import android.widget.EditText
import android.widget.ScrollView
import android.widget.TextView
import androidx.core.widget.NestedScrollView
import androidx.recyclerview.widget.RecyclerView
import kotlin.math.max
import kotlin.math.min
import kotlin.math.pow

/** What somebody with large fonts, weak eyes or a screen reader would stumble over in a window. */
fun findings(window: View): List<String> = window.shown().flatMap { cut(it) + unnamed(it) + small(it) }.toList() + faint(Picture(window))

/** Words that are cut: by dots, by their own height, or by what they stand in. */
private fun cut(view: View): List<String> {
    if (view !is TextView || view.text.isEmpty()) return emptyList()
    val layout = view.layout ?: return listOf("not laid out: ${say(view)}")
    val found = mutableListOf<String>()
    if ((0 until layout.lineCount).any { layout.getEllipsisCount(it) > 0 }) found += "cut by dots: ${say(view)}"
    if (layout.text.length < view.text.length) found += "words are missing: ${say(view)}"
    val scrolls = generateSequence(view.parent) { it.parent }.any { it is ScrollView || it is NestedScrollView || it is RecyclerView }
    val needed = layout.height + view.compoundPaddingTop + view.compoundPaddingBottom
    if (needed > view.height && view !is EditText) found += "cut in height: ${say(view)}"
    val widest = (0 until layout.lineCount).maxOf { layout.getLineMax(it) }
    if (widest > view.width - view.compoundPaddingLeft - view.compoundPaddingRight + 1) found += "cut in width: ${say(view)}"
    val place = view.seen()
    if (!scrolls && (place.width() < view.width || place.height() < view.height)) found += "outside of what can be seen: ${say(view)}"
    return found
}

/** Controls that a screen reader can only call "button". */
private fun unnamed(view: View): List<String> {
    if (!view.isClickable && !(view.isFocusable && view !is ViewGroup)) return emptyList()
    val isNamed = !view.contentDescription.isNullOrBlank() || (view is TextView && view.text.isNotBlank()) || label(view) != null
    return if (isNamed) emptyList() else listOf("without a name: ${say(view)}")
}

private fun label(view: View): View? = view.rootView.shown().firstOrNull { view.id != View.NO_ID && it.labelFor == view.id }

/** Controls that a finger misses: less than 48 dp. */
private fun small(view: View): List<String> {
    val least = SMALLEST_DP * view.resources.displayMetrics.density
    if (!view.isClickable || (view.width >= least && view.height >= least)) return emptyList()
    return listOf("${view.width} x ${view.height} pixels: ${say(view)}")
}

/** Words that hardly stand out, by their pixels: what they are on is the colour that most pixels have. */
private fun faint(picture: Picture): List<String> = picture.window.shown().filterIsInstance<TextView>()
    .filter { it.text.isNotBlank() && it.isEnabled }
    .mapNotNull { view ->
        val contrast = contrast(picture, view) ?: return@mapNotNull null
        if (contrast < LEAST_CONTRAST) "contrast %.2f: %s".format(contrast, say(view)) else null
    }.toList()

/** WCAG 2: (L1 + 0.05) / (L2 + 0.05) of relative luminances. Null: it is not seen whole; another page of what scrolls shows it. */
fun contrast(picture: Picture, view: View): Double? {
    val place = view.seen()
    if (place.isEmpty || place.height() < view.height || place.width() < view.width) return null
    val counts = mutableMapOf<Int, Int>()
    val colours = IntArray(place.width() * place.height())
    picture.pixels.getPixels(colours, 0, place.width(), place.left, place.top, place.width(), place.height())
    for (colour in colours) counts.merge(colour, 1, Int::plus)
    val ground = luminance(counts.maxBy { it.value }.key)
    // Edges of letters are mixed with the ground, so the words' own colour is the one that is furthest from it.
    return counts.filter { it.value >= MOST_STRAY }.maxOfOrNull { (colour, _) ->
        val words = luminance(colour)
        (max(words, ground) + OFFSET) / (min(words, ground) + OFFSET)
    }
}

private fun luminance(colour: Int): Double {
    fun linear(channel: Int) = (channel / 255.0).let { if (it <= 0.04045) it / 12.92 else ((it + 0.055) / 1.055).pow(2.4) }
    return 0.2126 * linear(Color.red(colour)) + 0.7152 * linear(Color.green(colour)) + 0.0722 * linear(Color.blue(colour))
}

private fun say(view: View): String {
    val name = if (view.id == View.NO_ID) null else runCatching { view.resources.getResourceEntryName(view.id) }.getOrNull()
    return "${name ?: view.javaClass.simpleName} '${(view as? TextView)?.text?.take(40) ?: view.contentDescription ?: ""}'"
}

private const val SMALLEST_DP = 48
private const val LEAST_CONTRAST = 4.5
private const val MOST_STRAY = 4  // pixels
private const val OFFSET = 0.05
