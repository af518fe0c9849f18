#ifndef DDP_TESTS_NUM_LAYERS_H
#define DDP_TESTS_NUM_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/device/cpu/cpu.h"

/* What the tests of operations on tokens share. Arrays that are returned belong to the caller. */
#define CONTEXTS 4

/* The instruction sets of this machine. main sets both. */
extern const struct cpu_set *sets;
extern int set_count;
extern const int64_t contexts[CONTEXTS], samples[3];

/* A device with the instruction set sets[set]. */
struct device *open_device(int set);
/* Fails the test if an operation has failed. */
void close_device(struct device *d);
bool multiplies_bf16(void);

/* n floats between -scale and scale, and 16 more that are zero. */
float *noise_array(size_t n, float scale, uint64_t seed);
double *array_widened(const float *x, size_t n);
float float_of_bf16(uint16_t half);

/* Keeps the result of the first call, whose *first is NULL, and compares those of the others with it. */
void same_as_first(float **first, const float *x, size_t n);
/* The largest difference is at most `tolerance` times the largest wanted value. */
void all_near(const float *got, const double *want, size_t n, double tolerance, const char *what);

#endif
