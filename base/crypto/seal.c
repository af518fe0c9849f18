#include "base/crypto/seal.h"

#include <limits.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/crypto/id.h"
#include "base/mem.h"

/* A version byte, the nonce, the ciphertext, the tag. */
#define SEAL_VERSION 1
#define NONCE 12
#define TAG 16
#define OVERHEAD (1 + NONCE + TAG)

void seal_close(struct buf *out, const uint8_t key[SEAL_KEY], const char *context, const void *data,
                size_t size)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    uint8_t *box = xmalloc(size + OVERHEAD), *nonce = box + 1, *text = nonce + NONCE;
    int len;

    BUG_ON(!ctx || size > INT_MAX - OVERHEAD);
    box[0] = SEAL_VERSION;
    id_random(nonce, NONCE);
    BUG_ON(EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, nonce) != 1 ||
           EVP_EncryptUpdate(ctx, NULL, &len, (const uint8_t *)context, (int)strlen(context)) != 1 ||
           EVP_EncryptUpdate(ctx, text, &len, data, (int)size) != 1 ||
           EVP_EncryptFinal_ex(ctx, text + size, &len) != 1 ||
           EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG, text + size) != 1);
    EVP_CIPHER_CTX_free(ctx);
    buf_append(out, box, size + OVERHEAD);
    free(box);
}

enum err_code seal_open(struct buf *out, const uint8_t key[SEAL_KEY], const char *context, const void *data,
                        size_t size, struct err *e)
{
    const uint8_t *box = data, *nonce = box + 1, *text = nonce + NONCE;
    uint8_t tag[TAG], last[TAG];
    int len;

    if (size < OVERHEAD || size > INT_MAX || box[0] != SEAL_VERSION)
        return err_set(e, ERR_DATA_LOSS, "the bytes are not a sealed record");
    const size_t inner = size - OVERHEAD;
    uint8_t *plain = xmalloc(inner + 1);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    BUG_ON(!ctx);
    memcpy(tag, text + inner, TAG);
    const bool good =
        EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, nonce) == 1 &&
        EVP_DecryptUpdate(ctx, NULL, &len, (const uint8_t *)context, (int)strlen(context)) == 1 &&
        EVP_DecryptUpdate(ctx, plain, &len, text, (int)inner) == 1 &&
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG, tag) == 1 &&
        EVP_DecryptFinal_ex(ctx, last, &len) == 1;
    EVP_CIPHER_CTX_free(ctx);
    if (good) /* no byte leaves this function before the tag has been checked */
        buf_append(out, plain, inner);
    free(plain);
    return good ? ERR_OK
                : err_set(e, ERR_DATA_LOSS, "the sealed record belongs to another cluster or is damaged");
}
