// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import dev.bespoke.BundleSource
import dev.bespoke.Example
import dev.bespoke.PersonalModel
import java.io.File
import java.security.KeyFactory
import java.security.KeyPairGenerator
import java.security.Signature
import java.security.spec.ECGenParameterSpec
import java.security.spec.PKCS8EncodedKeySpec
import kotlinx.coroutines.runBlocking

/** A key in two files, for processes without Android's key store. */
class PlainKey(private val folder: File) : SigningKey {
    private val private = File(folder, "private.der")
    private val public = File(folder, "public.der")

    override fun publicKey(): ByteArray? = public.takeIf { it.isFile }?.readBytes()

    override fun make(): ByteArray {
        val made = KeyPairGenerator.getInstance("EC").apply { initialize(ECGenParameterSpec("secp256r1")) }.generateKeyPair()
        folder.mkdirs()
        private.writeBytes(made.private.encoded)
        public.writeBytes(made.public.encoded)
        return made.public.encoded
    }

    override fun sign(message: ByteArray): ByteArray = Signature.getInstance("SHA256withECDSA").run {
        initSign(KeyFactory.getInstance("EC").generatePrivate(PKCS8EncodedKeySpec(private.readBytes())))
        update(message)
        sign()
    }

    override fun delete() {
        private.delete()
        public.delete()
    }
}

/** A user of an app without Android around it: a state, a device, and the client of a server. */
class User(private val folder: File) {
    val key = PlainKey(File(folder, "key"))
    val record = File(folder, "device.json")
    val device = Device(key, record)
    private val state = File(folder, "state").path
    val database = File(state, "state.sqlite")

    fun client(edge: Edge) = FederationClient(edge.url, device, edge.trust)

    fun <T> open(block: suspend (PersonalModel) -> T): T = runBlocking {
        folder.mkdirs()
        PersonalModel.open(BundleSource.At(Federated.bundle.path), state).use { block(it) }
    }

    /** With examples to measure on, consent, and the server's. */
    fun join(edge: Edge): User = apply {
        open { model ->
            addExamples(model)
            model.federation.join()
            client(edge).enrol(edge.token())
        }
    }

    fun learn(edge: Edge, rounds: Int = 1): LearnedTogether = open { learnTogether(it, client(edge), rounds) }
}

/** To measure on. */
suspend fun addExamples(model: PersonalModel) = repeat(2) { number ->
    model.examples.add(Example.Tokens(listOf(3, 4, 5L + number), listOf(0, 1, 1)), "$number", mustKnow = true)
}
