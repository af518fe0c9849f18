#include "base/net/relay_hello.h"

#include <string.h>

#include "base/crypto/id.h"

#define FIELDS (RELAY_HELLO - DIGEST_BYTES) /* bytes before the HMAC */

static void number_write(uint8_t out[8], int64_t value)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)((uint64_t)value >> (56 - 8 * i));
}

static int64_t number_read(const uint8_t in[8])
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value = value << 8 | in[i];
    return (int64_t)value;
}

void relay_make_ticket(uint8_t out[RELAY_TICKET], const uint8_t key[RELAY_KEY], int64_t job,
                       int64_t generation)
{
    uint8_t text[8 + 16] = "ticket";

    number_write(text + 8, job);
    number_write(text + 16, generation);
    digest_hmac(out, key, RELAY_KEY, text, sizeof(text));
}

static void hello_mac(uint8_t out[DIGEST_BYTES], const uint8_t fields[FIELDS],
                      const uint8_t ticket[RELAY_TICKET], const uint8_t nonce[RELAY_NONCE])
{
    uint8_t text[8 + FIELDS + RELAY_NONCE] = "hello";

    memcpy(text + 8, fields, FIELDS);
    memcpy(text + 8 + FIELDS, nonce, RELAY_NONCE);
    digest_hmac(out, ticket, RELAY_TICKET, text, sizeof(text));
}

void relay_write_hello(uint8_t out[RELAY_HELLO], const struct relay_hello *hello,
                       const uint8_t ticket[RELAY_TICKET], const uint8_t nonce[RELAY_NONCE])
{
    number_write(out, hello->job);
    number_write(out + 8, hello->generation);
    out[16] = (uint8_t)hello->end;
    memcpy(out + 17, hello->name, RELAY_NAME);
    hello_mac(out + FIELDS, out, ticket, nonce);
}

bool relay_read_hello(struct relay_hello *out, const uint8_t in[RELAY_HELLO], const uint8_t key[RELAY_KEY],
                      const uint8_t nonce[RELAY_NONCE])
{
    struct relay_hello hello = {.job = number_read(in), .generation = number_read(in + 8)};
    uint8_t ticket[RELAY_TICKET], mac[DIGEST_BYTES];

    relay_make_ticket(ticket, key, hello.job, hello.generation);
    hello_mac(mac, in, ticket, nonce);
    if (!secret_equal(mac, in + FIELDS, sizeof(mac)) || in[16] > RELAY_ACCEPTOR)
        return false;
    hello.end = (enum relay_end)in[16];
    memcpy(hello.name, in + 17, RELAY_NAME);
    *out = hello;
    return true;
}
