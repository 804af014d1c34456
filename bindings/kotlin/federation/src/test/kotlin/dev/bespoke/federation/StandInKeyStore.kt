// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import android.security.keystore.KeyGenParameterSpec
import android.security.keystore.KeyProperties
import java.io.InputStream
import java.io.OutputStream
import java.security.Key
import java.security.KeyPair
import java.security.KeyPairGenerator
import java.security.KeyPairGeneratorSpi
import java.security.KeyStoreSpi
import java.security.Provider
import java.security.PublicKey
import java.security.SecureRandom
import java.security.Security
import java.security.cert.Certificate
import java.security.spec.AlgorithmParameterSpec
import java.security.spec.ECGenParameterSpec
import java.util.Collections
import java.util.Date
import java.util.Enumeration

/** In the place of Android's key store, which no JVM has: it takes the one kind of key that is asked for, and keeps it in memory. */
class StandInKeyStore : Provider("AndroidKeyStore", "1", "keys in memory") {
    init {
        put("KeyStore.AndroidKeyStore", Store::class.java.name)
        put("KeyPairGenerator.EC", Generator::class.java.name)
    }

    /** Makes keys. */
    class Generator : KeyPairGeneratorSpi() {
        private lateinit var asked: KeyGenParameterSpec

        override fun initialize(keysize: Int, random: SecureRandom?) = error("a size says no curve")

        override fun initialize(params: AlgorithmParameterSpec, random: SecureRandom?) {
            asked = params as KeyGenParameterSpec
            check((asked.algorithmParameterSpec as ECGenParameterSpec).name == "secp256r1")
            check(asked.purposes == KeyProperties.PURPOSE_SIGN && asked.digests.toList() == listOf(KeyProperties.DIGEST_SHA256))
            check(!asked.isUserAuthenticationRequired) { "nobody is there while it works" }
        }

        override fun generateKeyPair(): KeyPair =
            KeyPairGenerator.getInstance("EC").apply { initialize(ECGenParameterSpec("secp256r1")) }.generateKeyPair()
                .also { keys[asked.keystoreAlias] = it }
    }

    /** Keeps them. */
    class Store : KeyStoreSpi() {
        override fun engineGetKey(alias: String, password: CharArray?): Key? = keys[alias]?.private

        override fun engineGetCertificate(alias: String): Certificate? = keys[alias]?.let { Holder(it.public) }

        override fun engineDeleteEntry(alias: String) {
            keys.remove(alias)
        }

        override fun engineLoad(stream: InputStream?, password: CharArray?) = Unit

        override fun engineContainsAlias(alias: String) = alias in keys

        override fun engineIsKeyEntry(alias: String) = alias in keys

        override fun engineSize() = keys.size

        override fun engineAliases(): Enumeration<String> = Collections.enumeration(keys.keys)

        override fun engineGetCertificateChain(alias: String): Array<Certificate>? = engineGetCertificate(alias)?.let { arrayOf(it) }

        override fun engineGetCreationDate(alias: String): Date? = null

        override fun engineIsCertificateEntry(alias: String) = false

        override fun engineGetCertificateAlias(cert: Certificate?): String? = null

        override fun engineSetKeyEntry(alias: String?, key: Key?, password: CharArray?, chain: Array<out Certificate>?) = error("keys are made here")

        override fun engineSetKeyEntry(alias: String?, key: ByteArray?, chain: Array<out Certificate>?) = error("keys are made here")

        override fun engineSetCertificateEntry(alias: String?, cert: Certificate?) = error("keys are made here")

        override fun engineStore(stream: OutputStream?, password: CharArray?) = error("keys stay here")
    }

    private class Holder(private val key: PublicKey) : Certificate("X.509") {
        override fun getPublicKey() = key

        override fun getEncoded() = error("nobody asks for it")

        override fun verify(key: PublicKey?) = error("nobody asks for it")

        override fun verify(key: PublicKey?, sigProvider: String?) = error("nobody asks for it")

        override fun toString() = "a key's"
    }

    companion object {
        val keys = mutableMapOf<String, KeyPair>()

        /** Empty, as on a new device. */
        fun begin() {
            keys.clear()
            Security.removeProvider("AndroidKeyStore")
            Security.addProvider(StandInKeyStore())
        }
    }
}
