// SPDX-License-Identifier: Apache-2.0
package dev.bespoke

import kotlinx.coroutines.runBlocking

/**
 * BUNDLE STATE PROMPT TOKENS: asks for answers until so many tokens were timed. Prints the nanoseconds of each, but for the first of an
 * answer, which reads the prompt. tests/benchmarks/token_times.c does the same in C, and test_tokens_by_jni.py compares them.
 */
object TokenTimes {
    private const val ANSWER = 64L

    @JvmStatic
    fun main(arguments: Array<String>): Unit = runBlocking {
        val (bundle, state, prompt, tokens) = arguments
        val times = mutableListOf<Long>()
        PersonalModel.open(BundleSource.At(bundle), state, Options(threads = 1)).use { model ->
            while (times.size < tokens.toInt()) {
                model.conversation(Generation(maxTokens = ANSWER)).use { conversation ->
                    var before = 0L
                    conversation.say(Prompt.Text(prompt)).collect {
                        val now = System.nanoTime()
                        if (before != 0L) times.add(now - before)
                        before = now
                    }
                }
            }
        }
        times.take(tokens.toInt()).forEach { println(it) }
    }
}
