// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

import android.security.keystore.KeyGenParameterSpec
import android.security.keystore.KeyProperties
import java.security.KeyPairGenerator
import java.security.KeyStore
import java.security.PrivateKey
import java.security.Signature
import java.security.spec.ECGenParameterSpec

/** A key in Android's key store under the name [alias]. It cannot be exported, and no backup holds it. */
class KeystoreKey(private val alias: String) : SigningKey {
    private val store by lazy { KeyStore.getInstance(STORE).apply { load(null) } }

    override fun publicKey(): ByteArray? = store.getCertificate(alias)?.publicKey?.encoded

    override fun make(): ByteArray {
        val use = KeyGenParameterSpec.Builder(alias, KeyProperties.PURPOSE_SIGN)
            .setAlgorithmParameterSpec(ECGenParameterSpec("secp256r1"))
            .setDigests(KeyProperties.DIGEST_SHA256)
            .build()
        val made = KeyPairGenerator.getInstance(KeyProperties.KEY_ALGORITHM_EC, STORE).apply { initialize(use) }
        return made.generateKeyPair().public.encoded
    }

    override fun sign(message: ByteArray): ByteArray = Signature.getInstance("SHA256withECDSA").run {
        initSign(checkNotNull(store.getKey(alias, null) as? PrivateKey) { "$alias: got no key; expected one in the key store. Enrol again." })
        update(message)
        sign()
    }

    override fun delete() {
        store.deleteEntry(alias)
    }

    private companion object {
        const val STORE = "AndroidKeyStore"
    }
}
