/* Element i is added to lane i % LANES, so that the compiler makes vector code of the loops. */
#include "trainer/member/sync/squares.h"

#define LANES 8

static double lanes_sum(const double *lane)
{
    double sum = 0.0;

    for (int i = 0; i < LANES; i++)
        sum += lane[i];
    return sum;
}

double squares_sum(const float *x, size_t count)
{
    double lane[LANES] = {0};
    size_t rest = count % LANES;

    for (const float *end = x + (count - rest); x < end; x += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < rest; i++)
        lane[i] += (double)x[i] * (double)x[i];
    return lanes_sum(lane);
}

double squares_of_difference(const float *x, const float *y, size_t count)
{
    double lane[LANES] = {0};
    size_t rest = count % LANES;

    for (const float *end = x + (count - rest); x < end; x += LANES, y += LANES)
        for (int i = 0; i < LANES; i++) {
            double away = (double)x[i] - (double)y[i];

            lane[i] += away * away;
        }
    for (size_t i = 0; i < rest; i++) {
        double away = (double)x[i] - (double)y[i];

        lane[i] += away * away;
    }
    return lanes_sum(lane);
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
