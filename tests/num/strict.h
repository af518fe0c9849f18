#ifndef DDP_TESTS_NUM_STRICT_H
#define DDP_TESTS_NUM_STRICT_H

#include "trainer/device/device.h"

/* The parts that strict.c (memory, the queue of calls, the plugin) and strict_ops.c (the operations)
 * share. */

/* A queued operation and its arguments. Pointers are already translated to real memory. */
struct call {
    void (*run)(struct device *cpu, const struct call *c);
    union {
        struct device_product product;
        struct device_linear linear;
        struct device_embedding embedding;
        struct device_norm norm;
        struct device_norm_grad norm_grad;
        struct device_attention attention;
        struct device_classes classes;
        struct device_sgd sgd;
        struct device_adamw adamw;
        struct device_muon muon;
    } h;
    void *p[6];
    int64_t n[2];
    enum device_type type, kept;
    enum device_activation kind;
    float by;
    double real;
};

void strict_call(struct device *d, struct call c);
/* Translates the device's pointer p to real memory. NULL stays NULL. Aborts if p is host memory. */
void *strict_in(struct device *d, const void *p);
void strict_not_while_recording(struct device *d);

/* In strict_kept.c: runs the operation with bf16 as the kept type. */
enum strict_kept_op {
    KEPT_PRODUCT,
    KEPT_LINEAR,
    KEPT_BIAS_GRAD,
    KEPT_BIAS_ACTIVATE_GRAD,
    KEPT_NORM,
    KEPT_NORM_GRAD,
    KEPT_EMBED_GRAD,
    KEPT_ATTENTION,
    KEPT_ATTENTION_GRAD,
    KEPT_CROSS_ENTROPY,
};
void strict_keep(const struct device *d, struct call *c, enum strict_kept_op op, enum device_type kept);

/* Fills in the operations of strict_ops.c. */
void strict_operations(struct device_ops *ops);

#endif
