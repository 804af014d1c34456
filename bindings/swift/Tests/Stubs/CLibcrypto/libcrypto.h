/* SPDX-License-Identifier: Apache-2.0
 * What the stand-in for CryptoKit calls of OpenSSL 3, whose headers a machine need not have (docs.openssl.org/3.0/man3). */
#ifndef BESPOKE_LIBCRYPTO_H
#define BESPOKE_LIBCRYPTO_H

#include <stddef.h>

typedef struct ec_key_st EC_KEY;
typedef struct ECDSA_SIG_st ECDSA_SIG;
typedef struct bignum_st BIGNUM;

enum { BESPOKE_NID_P256 = 415 }; /* NID_X9_62_prime256v1 */

EC_KEY* EC_KEY_new_by_curve_name(int nid);
void EC_KEY_free(EC_KEY* key);
int EC_KEY_generate_key(EC_KEY* key);
int EC_KEY_oct2priv(EC_KEY* key, const unsigned char* bytes, size_t size);
size_t EC_KEY_priv2oct(const EC_KEY* key, unsigned char* bytes, size_t size);
int i2d_EC_PUBKEY(const EC_KEY* key, unsigned char** out);
const void* EC_KEY_get0_group(const EC_KEY* key);
const BIGNUM* EC_KEY_get0_private_key(const EC_KEY* key);
int EC_KEY_set_public_key(EC_KEY* key, const void* point);
void* EC_POINT_new(const void* group);
void EC_POINT_free(void* point);
int EC_POINT_mul(const void* group, void* result, const BIGNUM* n, const void* q, const BIGNUM* m, void* context);

ECDSA_SIG* ECDSA_do_sign(const unsigned char* digest, int size, EC_KEY* key);
void ECDSA_SIG_free(ECDSA_SIG* signature);
const BIGNUM* ECDSA_SIG_get0_r(const ECDSA_SIG* signature);
const BIGNUM* ECDSA_SIG_get0_s(const ECDSA_SIG* signature);
int BN_bn2binpad(const BIGNUM* number, unsigned char* bytes, int size);

#endif
