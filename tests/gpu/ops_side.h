#ifndef DDP_TESTS_GPU_OPS_SIDE_H
#define DDP_TESTS_GPU_OPS_SIDE_H

#include "base/random.h"
#include "trainer/device/device.h"

/* One of the devices that a test of operations compares: its arrays, and the results that operations left in them. Each side
 * makes the same numbers, rounded in the same way, runs the same operations and takes the results in the same order. */

enum { SIDE_ARRAYS = 24, SIDE_RESULTS = 12 };

struct side {
    struct device *d;
    enum device_type mode; /* inputs are rounded to this type, on both sides */
    enum device_type type; /* the type of arrays that may be bf16: float on the CPU, `mode` on the GPU */
    struct random random;
    int shifted;  /* by how many elements arrays begin behind a 16-byte boundary */
    int failures; /* what this side has printed as FAIL */
    int arrays, results;
    void *array[SIDE_ARRAYS];
    struct result {
        const char *name;
        float *x;
        int64_t n;
        enum device_type type;
        int64_t depth; /* how many numbers each element is a sum of; 0: few */
        bool exact;    /* must have the same bits as on the CPU */
        bool newton;   /* a result of Newton-Schulz steps, which increase errors */
    } result[SIDE_RESULTS];
};

/* Sizes of a case. What the fields mean is said at each case. */
struct ops_shape {
    int64_t rows, context, width; /* of flat arrays only width, the length; of matrices rows and width */
    int64_t vocab;                /* 0: the case has no tokens */
    float dropout;
    int way; /* of products and layers: which variant */
};
typedef void ops_try_fn(struct side *s, const struct ops_shape *h);
struct ops_case {
    ops_try_fn *fn;
    struct ops_shape h;
    bool large; /* left out with --quick */
};

/* Ends the program with this message if not ok. */
void side_must(bool ok, const char *what);
void *side_host_alloc(size_t bytes);

/* Arrays of the device, all of which side_release frees. NaN lies behind their ends, and in blank ones. */
float side_random(struct side *s); /* between -1 and 1 */
void *side_new_bytes(struct side *s, const void *from, size_t bytes, size_t size);
void *side_new_blank(struct side *s, enum device_type type, int64_t n);
/* n random numbers between -by and by. rounded: they are rounded to the side's mode. */
void *side_new_noise(struct side *s, enum device_type type, bool rounded, float by, int64_t n);
void *side_new_floats(struct side *s, float by, int64_t n);
void *side_new_typed(struct side *s, float by, int64_t n);

/* Keep a result for the comparison. All but the last check that nothing was written behind its end. */
void side_take(struct side *s, const char *name, const void *from, enum device_type type, int64_t n);
/* Each element is a sum of `depth` numbers. */
void side_take_sum(struct side *s, const char *name, const void *from, enum device_type type, int64_t n,
                   int64_t depth);
void side_take_exact(struct side *s, const char *name, const float *from, int64_t n);
void side_take_doubles(struct side *s, const char *name, const double *from, int64_t n);
void side_release(struct side *s);

/* Runs a case on the CPU and twice on the GPU, in float and in bf16, with arrays that begin so many elements behind a boundary.
 * Prints the relative error of each result. Returns the number of failures. */
int side_try(struct device *cpu, struct device *gpu, ops_try_fn *fn, const struct ops_shape *h, int shifted);
/* The same for each alignment that is worth a try. row: elements of a row. */
int side_try_case(struct device *cpu, struct device *gpu, const struct ops_case *c, int64_t row);

#endif
