#ifndef DDP_TESTS_UNIT_CLIENT_GOLDEN_H
#define DDP_TESTS_UNIT_CLIENT_GOLDEN_H

#include "base/buf.h"

/* Compares text with tests/unit/client/golden/NAME. A changed screen: run the test with DDP_GOLDEN_WRITE=1,
 * then read the difference before you commit it. Clears the buffer. */
void golden_check(const char *name, struct buf *text);

#endif
