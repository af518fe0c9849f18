#include "trainer/rank_number.h"

#include <stdlib.h>
#include <string.h>

int64_t rank_number(const char *variable, int rank)
{
    const char *text = getenv(variable);
    for (; text && rank > 0; rank--) {
        text = strchr(text, ',');
        text += text != NULL;
    }
    return text ? strtoll(text, NULL, 10) : 0;
}
