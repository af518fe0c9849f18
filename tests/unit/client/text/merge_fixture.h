#ifndef DDP_TESTS_UNIT_CLIENT_TEXT_MERGE_FIXTURE_H
#define DDP_TESTS_UNIT_CLIENT_TEXT_MERGE_FIXTURE_H

#include "client/text/output_merge.h"

/* What the tests of merged output share. */

/* A rank writes this text to stdout. */
void merge_add_text(struct output_merge *m, int rank, const char *text, int64_t now_ms);
/* Fails the test unless exactly this text waits for the target, and removes it. */
void merge_check_text(struct output_target *t, const char *expected);
/* The first target wants labels, as a terminal does. The caller calls output_merge_release. */
struct output_merge merge_for_terminal(void);

#endif
