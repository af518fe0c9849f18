#ifndef DDP_TESTS_UNIT_CLIENT_GOLDEN_H
#define DDP_TESTS_UNIT_CLIENT_GOLDEN_H

#include "base/buf.h"

/* Compares the text with tests/unit/client/golden/NAME and clears the buffer. After a change of a screen, run
 * the test with DDP_GOLDEN_WRITE=1 and read the difference before you commit it. */
void golden_check(const char *name, struct buf *text);

#endif
