#include "base/crypto/id.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/mem.h"

void id_random(void *out, size_t size)
{
    uint8_t *at = out;

    while (size) {
        ssize_t n = getrandom(at, size, 0);

        if (n < 0 && errno == EINTR)
            continue;
        BUG_ON(n <= 0);
        at += n;
        size -= (size_t)n;
    }
}

void id_text(char out[ID_TEXT])
{
    uint8_t bits[(ID_TEXT - 1) / 2];

    id_random(bits, sizeof(bits));
    hex_encode(out, bits, sizeof(bits));
}

void hex_encode(char *out, const void *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = data;

    for (size_t i = 0; i < size; i++) {
        *out++ = digits[in[i] >> 4];
        *out++ = digits[in[i] & 15];
    }
    *out = '\0';
}

static int hex_nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool hex_decode(void *out, size_t size, const char *text)
{
    uint8_t *to = out;

    for (size_t i = 0; i < size; i++) {
        int high = hex_nibble(text[2 * i]);
        int low = high < 0 ? -1 : hex_nibble(text[2 * i + 1]);

        if (low < 0)
            return false;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return text[2 * size] == '\0';
}

void digest_sha256(uint8_t out[DIGEST_BYTES], const void *data, size_t size)
{
    BUG_ON(!SHA256(data, size, out));
}

void digest_hmac(uint8_t out[DIGEST_BYTES], const void *key, size_t key_size, const void *data, size_t size)
{
    unsigned len = DIGEST_BYTES;

    BUG_ON(!HMAC(EVP_sha256(), key, (int)key_size, data, size, out, &len) || len != DIGEST_BYTES);
}

static void free_context(EVP_MD_CTX **context)
{
    EVP_MD_CTX_free(*context);
}

enum err_code digest_file(char out[DIGEST_TEXT], const char *path, struct err *e)
{
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    CLEANUP(free_context) EVP_MD_CTX *context = EVP_MD_CTX_new();
    uint8_t chunk[65536], digest[DIGEST_BYTES];
    ssize_t n;

    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    BUG_ON(!context || !EVP_DigestInit_ex(context, EVP_sha256(), NULL));
    while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read %s", path);
        BUG_ON(!EVP_DigestUpdate(context, chunk, (size_t)n));
    }
    BUG_ON(!EVP_DigestFinal_ex(context, digest, NULL));
    hex_encode(out, digest, sizeof(digest));
    return ERR_OK;
}

bool id_node_name(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n <= 63 &&
           n == strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") &&
           *name != '.' && *name != '-';
}

bool secret_equal(const void *a, const void *b, size_t size)
{
    return CRYPTO_memcmp(a, b, size) == 0;
}
