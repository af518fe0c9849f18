/* Loops over whole blocks have constant bounds, and neither branches nor calls, so that the compiler makes
 * vector code of them. A short last block is copied to a whole one that zeros fill. */
#include "trainer/member/sync/wire.h"

#include <string.h>

#include "trainer/member/sync/squares.h"

#define SCALE_BYTES 2
#define INFINITE 0x7f800000u
#define BF16_OVERFLOW 0x7f7f8000u /* from here on, rounding to bf16 gives infinity */
/* 1.5 * 2^23: a float this large has no fraction, so adding it rounds to nearest even. */
#define ROUNDER 12582912.0f

static uint32_t float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float bits_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint16_t bf16_of(float x)
{
    uint32_t bits = float_bits(x);

    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float bf16_float(uint16_t half)
{
    return bits_float((uint32_t)half << 16);
}

static size_t block_bytes(enum wire_type wire, size_t count)
{
    switch (wire) {
    case WIRE_FP32:
        return count * sizeof(float);
    case WIRE_BF16:
        return count * sizeof(uint16_t);
    case WIRE_INT8:
        return SCALE_BYTES + count;
    case WIRE_INT4:
        break;
    }
    return SCALE_BYTES + (count + 1) / 2;
}

size_t wire_bytes(enum wire_type wire, size_t count)
{
    size_t whole = count / WIRE_BLOCK, rest = count % WIRE_BLOCK;

    return whole * block_bytes(wire, WIRE_BLOCK) + (rest ? block_bytes(wire, rest) : 0);
}

/* ---- encoding */

/* As bits: for values that are not negative, the order of the bits is that of the floats. */
static uint32_t block_largest(const float *x)
{
    int32_t most = 0;

    for (int i = 0; i < WIRE_BLOCK; i++) {
        int32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* Codes of -limit to limit, plus limit: 0 to 2 limit. A scale of 0 gives all codes 0. */
static void block_codes(const float *x, float scale, float limit, int32_t *codes)
{
    float by = scale > 0.0f ? scale : 1.0f, on = scale > 0.0f ? 1.0f : 0.0f;

    for (int i = 0; i < WIRE_BLOCK; i++) {
        float v = x[i] * on / by;

        v = v > limit ? limit : v;
        v = v < -limit ? -limit : v;
        codes[i] = (int32_t)(v + ROUNDER - ROUNDER) + (int32_t)limit;
    }
}

static void block_encode(enum wire_type wire, const float *x, uint32_t largest, uint8_t *out)
{
    float limit = wire == WIRE_INT8 ? 127.0f : 7.0f;
    uint16_t scale = bf16_of(bits_float(largest) / limit);
    int32_t codes[WIRE_BLOCK];

    block_codes(x, bf16_float(scale), limit, codes);
    memcpy(out, &scale, SCALE_BYTES);
    out += SCALE_BYTES;
    if (wire == WIRE_INT8)
        for (int i = 0; i < WIRE_BLOCK; i++)
            out[i] = (uint8_t)codes[i];
    else
        for (int i = 0; i < WIRE_BLOCK / 2; i++)
            out[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
}

static void bf16_encode(const float *x, uint8_t *out)
{
    uint16_t halves[WIRE_BLOCK];

    for (int i = 0; i < WIRE_BLOCK; i++)
        halves[i] = bf16_of(x[i]);
    memcpy(out, halves, sizeof(halves));
}

static bool encode_whole(enum wire_type wire, const float *x, uint8_t *out)
{
    uint32_t largest = block_largest(x);

    if (largest >= (wire == WIRE_FP32 ? INFINITE : BF16_OVERFLOW))
        return false;
    if (wire == WIRE_FP32)
        memcpy(out, x, WIRE_BLOCK * sizeof(float));
    else if (wire == WIRE_BF16)
        bf16_encode(x, out);
    else
        block_encode(wire, x, largest, out);
    return true;
}

bool wire_encode(enum wire_type wire, const float *x, size_t count, uint8_t *out)
{
    size_t bytes = block_bytes(wire, WIRE_BLOCK), rest = count % WIRE_BLOCK;
    float filled[WIRE_BLOCK] = {0};
    uint8_t room[WIRE_BLOCK * sizeof(float)];
    bool finite = true;

    for (const float *end = x + (count - rest); x < end; x += WIRE_BLOCK, out += bytes)
        finite &= encode_whole(wire, x, out);
    if (!rest)
        return finite;
    memcpy(filled, x, rest * sizeof(float));
    finite &= encode_whole(wire, filled, room);
    if (finite)
        memcpy(out, room, block_bytes(wire, rest));
    return finite;
}

/* ---- decoding */

static void decode_whole(enum wire_type wire, const uint8_t *in, float *q)
{
    uint16_t scale, halves[WIRE_BLOCK];
    float by;

    if (wire == WIRE_FP32) {
        memcpy(q, in, WIRE_BLOCK * sizeof(float));
        return;
    }
    if (wire == WIRE_BF16) {
        memcpy(halves, in, sizeof(halves));
        for (int i = 0; i < WIRE_BLOCK; i++)
            q[i] = bf16_float(halves[i]);
        return;
    }
    memcpy(&scale, in, SCALE_BYTES);
    in += SCALE_BYTES;
    by = bf16_float(scale);
    if (wire == WIRE_INT8)
        for (int i = 0; i < WIRE_BLOCK; i++)
            q[i] = (float)((int32_t)in[i] - 127) * by;
    else
        for (int i = 0; i < WIRE_BLOCK / 2; i++) {
            q[2 * i] = (float)((int32_t)(in[i] & 15) - 7) * by;
            q[2 * i + 1] = (float)((int32_t)(in[i] >> 4) - 7) * by;
        }
}

void wire_add(enum wire_type wire, const uint8_t *codes, size_t count, float weight, float *sum)
{
    size_t bytes = block_bytes(wire, WIRE_BLOCK), rest = count % WIRE_BLOCK;
    uint8_t room[WIRE_BLOCK * sizeof(float)] = {0};
    float q[WIRE_BLOCK];

    for (const float *end = sum + (count - rest); sum < end; sum += WIRE_BLOCK, codes += bytes) {
        decode_whole(wire, codes, q);
        for (int i = 0; i < WIRE_BLOCK; i++)
            sum[i] += weight * q[i];
    }
    if (!rest)
        return;
    memcpy(room, codes, block_bytes(wire, rest));
    decode_whole(wire, room, q);
    for (size_t i = 0; i < rest; i++)
        sum[i] += weight * q[i];
}

double wire_squares(enum wire_type wire, const uint8_t *codes, size_t count)
{
    size_t bytes = block_bytes(wire, WIRE_BLOCK), rest = count % WIRE_BLOCK;
    uint8_t room[WIRE_BLOCK * sizeof(float)] = {0};
    float q[WIRE_BLOCK];
    double sum = 0.0;

    for (size_t i = 0; i < count / WIRE_BLOCK; i++, codes += bytes) {
        decode_whole(wire, codes, q);
        sum += squares_sum(q, WIRE_BLOCK);
    }
    if (!rest)
        return sum;
    memcpy(room, codes, block_bytes(wire, rest));
    decode_whole(wire, room, q);
    return sum + squares_sum(q, rest);
}

void wire_subtract(enum wire_type wire, const uint8_t *codes, size_t count, float *x)
{
    wire_add(wire, codes, count, -1.0f, x);
}
