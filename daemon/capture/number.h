#ifndef DDP_DAEMON_CAPTURE_NUMBER_H
#define DDP_DAEMON_CAPTURE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* Reads a decimal number at the start of the text, as programs print it: 3.21, -1, 5e-05, nan, NaN, inf. Sets *end behind it.
 * *value is NaN if the number is not finite. */
bool number_read(const char *text, const char **end, double *value);
/* Whether the whole number is an integer that a step can be. */
bool number_is_step(double value);
/* The metric's name for a name that a program prints: in lower case, and learning_rate becomes lr, eval_loss val_loss. False: the
 * name is empty, too long, or not ASCII text. `out` has METRIC_NAME bytes. */
bool number_name(const char *text, size_t len, char *out);

#endif
