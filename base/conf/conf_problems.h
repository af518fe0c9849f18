#ifndef DDP_BASE_CONF_CONF_PROBLEMS_H
#define DDP_BASE_CONF_CONF_PROBLEMS_H

#include "base/buf.h"
#include "base/conf/conf.h"

/* All errors of a document, where a reader stops at the first. The reader is called again and again, each time without
 * the part of the document that its last error named. */
struct conf_problem {
    char *text;          /* the reader's message: "job.yaml:5:3: unknown key 'slotz'" */
    size_t line, column; /* its place in the file; line 0: it has none there (--set) */
};
struct conf_problems {
    struct conf_problem *list; /* in the order of the file; those without a place come last */
    size_t count, cap;
};
/* Removes the parts with errors from the document. A required key inside a removed
 * part is not reported as missing. */
void conf_problems_find(struct conf_doc *doc,
                        enum err_code (*read)(const struct conf_doc *doc, void *context, struct err *e),
                        void *context, struct conf_problems *out);
void conf_problems_release(struct conf_problems *problems);

/* Appends the message, then the line of `source` (the file's text) and a ^ under its column. No line end. */
void conf_problem_print(const struct conf_problem *problem, const char *source, struct buf *out);

#endif
