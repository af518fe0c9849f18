#include "daemon/capture/number.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/worker/metric.h"

#define DIGITS_MOST 40 /* bytes of a number that a program prints */

bool number_read(const char *text, const char **end, double *value)
{
    static const char *const words[] = {"nan", "NaN", "NAN", "infinity", "Infinity", "inf", "Inf"};
    const char *at = text + (*text == '-' || *text == '+');
    char *stop;

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        const size_t len = strlen(words[i]);
        if (strncmp(at, words[i], len) == 0 && !isalnum((unsigned char)at[len]) && at[len] != '_') {
            *end = at + len;
            *value = NAN;
            return true;
        }
    }
    if (!isdigit((unsigned char)*at) && !(*at == '.' && isdigit((unsigned char)at[1])))
        return false;
    if (*at == '0' && (at[1] == 'x' || at[1] == 'X'))
        return false;
    /* Refuses a long row of digits before strtod, which is slow for it. The caller would try again from each further digit. */
    for (size_t digits = 0; isdigit((unsigned char)at[digits]) || at[digits] == '.'; digits++)
        if (digits == DIGITS_MOST)
            return false;
    *value = strtod(text, &stop);
    if (stop - text > DIGITS_MOST)
        return false;
    *end = stop;
    if (!isfinite(*value))
        *value = NAN;
    return true;
}

bool number_is_step(double value)
{
    return value >= 0 && value < 1e15 && value == floor(value);
}

bool number_name(const char *text, size_t len, char *out)
{
    static const struct {
        const char *printed, *name;
    } known[] = {
        {"learning_rate", "lr"},         {"norm", "grad_norm"},           {"gradient_norm", "grad_norm"},
        {"validation_loss", "val_loss"}, {"valid_loss", "val_loss"},      {"eval_loss", "val_loss"},
        {"evaluation_loss", "val_loss"}, {"training_loss", "train_loss"}, {"tok/s", "tokens_per_s"},
        {"tok/sec", "tokens_per_s"},     {"tokens/s", "tokens_per_s"},    {"train/loss", "loss"},
        {"loss/train", "loss"},          {"eval/loss", "val_loss"},       {"val/loss", "val_loss"},
        {"loss/val", "val_loss"}};

    if (!len || len >= METRIC_NAME)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return false;
        out[i] = (char)tolower((unsigned char)text[i]);
    }
    out[len] = 0;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(out, known[i].printed) == 0)
            memcpy(out, known[i].name, strlen(known[i].name) + 1);
    return true;
}
