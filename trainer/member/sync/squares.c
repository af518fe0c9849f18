/* In a block, element i is added to lane i % LANES, so that the compiler makes vector code of the loops. */
#include "trainer/member/sync/squares.h"

#include <stdint.h>
#include <string.h>

#define LANES 16
#define BLOCK 512 /* a lane gets 32 values */

static size_t block_count(size_t rest)
{
    return rest < BLOCK ? rest : BLOCK;
}

static double lanes_sum(const float *lane)
{
    double sum = 0.0;

    for (int i = 0; i < LANES; i++)
        sum += (double)lane[i];
    return sum;
}

static double block_squares(const float *x, size_t count)
{
    float lane[LANES] = {0};
    size_t rest = count % LANES;

    for (const float *end = x + (count - rest); x < end; x += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] += x[i] * x[i];
    for (size_t i = 0; i < rest; i++)
        lane[i] += x[i] * x[i];
    return lanes_sum(lane);
}

double squares_sum(const float *x, size_t count)
{
    double sum = 0.0;

    for (size_t at = 0; at < count; at += BLOCK)
        sum += block_squares(x + at, block_count(count - at));
    return sum;
}

static double block_difference(const float *x, const float *y, size_t count)
{
    float lane[LANES] = {0};
    size_t rest = count % LANES;

    for (const float *end = x + (count - rest); x < end; x += LANES, y += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] += (x[i] - y[i]) * (x[i] - y[i]);
    for (size_t i = 0; i < rest; i++)
        lane[i] += (x[i] - y[i]) * (x[i] - y[i]);
    return lanes_sum(lane);
}

double squares_of_difference(const float *x, const float *y, size_t count)
{
    double sum = 0.0;

    for (size_t at = 0; at < count; at += BLOCK)
        sum += block_difference(x + at, y + at, block_count(count - at));
    return sum;
}

static double block_scaled(float *restrict out, const float *restrict x, const float *restrict y, float by,
                           size_t count)
{
    float lane[LANES] = {0};
    size_t rest = count % LANES;

    for (const float *end = x + (count - rest); x < end; x += LANES, y += LANES, out += LANES)
        for (int i = 0; i < LANES; i++) {
            lane[i] += (x[i] - y[i]) * (x[i] - y[i]);
            out[i] = x[i] * by;
        }
    for (size_t i = 0; i < rest; i++) {
        lane[i] += (x[i] - y[i]) * (x[i] - y[i]);
        out[i] = x[i] * by;
    }
    return lanes_sum(lane);
}

double squares_scaled(float *out, const float *x, const float *y, float by, size_t count)
{
    double sum = 0.0;

    for (size_t at = 0; at < count; at += BLOCK)
        sum += block_scaled(out + at, x + at, y + at, by, block_count(count - at));
    return sum;
}

static double block_moved(float *restrict out, const float *restrict x, float *restrict y, size_t count)
{
    float lane[LANES] = {0};
    size_t rest = count % LANES;

    for (const float *end = x + (count - rest); x < end; x += LANES, y += LANES, out += LANES)
        for (int i = 0; i < LANES; i++) {
            lane[i] += (x[i] - y[i]) * (x[i] - y[i]);
            out[i] = y[i] = x[i];
        }
    for (size_t i = 0; i < rest; i++) {
        lane[i] += (x[i] - y[i]) * (x[i] - y[i]);
        out[i] = y[i] = x[i];
    }
    return lanes_sum(lane);
}

double squares_moved(float *out, const float *x, float *y, size_t count)
{
    double sum = 0.0;

    for (size_t at = 0; at < count; at += BLOCK)
        sum += block_moved(out + at, x + at, y + at, block_count(count - at));
    return sum;
}

bool floats_finite(const float *x, size_t count)
{
    uint32_t most = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000;
}

double squares_on_device(struct device *device, const float *x, size_t count, double *room)
{
    double sum;

    if (device->host)
        return squares_sum(x, count);
    device->ops->sum_squares(device, x, count, room);
    device->ops->download(device, &sum, room, sizeof(sum));
    return sum;
}
