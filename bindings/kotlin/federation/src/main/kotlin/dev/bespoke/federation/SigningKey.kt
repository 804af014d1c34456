// SPDX-License-Identifier: Apache-2.0
package dev.bespoke.federation

/**
 * An ES256 key (P-256) of a device. On phones it is a [KeystoreKey], which nobody can read. It belongs to one user's part in one task.
 * Nothing of the user is in it.
 */
interface SigningKey {
    /** The public key, a SubjectPublicKeyInfo in DER; null: there is no key. */
    fun publicKey(): ByteArray?

    /** Makes a new key in the place of any that there is. Its public key. */
    fun make(): ByteArray

    /** An ECDSA signature with SHA-256 over [message], in DER. */
    fun sign(message: ByteArray): ByteArray

    /** Deletes the key. It does nothing where there is none. */
    fun delete()
}
