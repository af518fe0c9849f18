#ifndef DDP_BASE_LOG_H
#define DDP_BASE_LOG_H

/* One logfmt line to stderr: `ts=... level=info prog=ddp-agent event=node_joined job=7 gen=3`. Fixed keys
 * where they apply: job gen rank node pid rpc. error: someone must act; warn: we coped; info: a state moved;
 * debug: the rest. Libraries return errors; who handles one logs it, once. One write(2) a line; any thread.
 */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Once, before there are threads. */
void log_init(const char *program,
              enum log_level least); /* DDP_LOG=debug|info|warn|error in the environment wins */

/* fmt gives the key=value part, quoted by the caller where a value may hold spaces (log_quote). */
void log_line(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define log_debug(event, ...) log_line(LOG_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...) log_line(LOG_INFO, event, __VA_ARGS__)
#define log_warn(event, ...) log_line(LOG_WARN, event, __VA_ARGS__)
#define log_error(event, ...) log_line(LOG_ERROR, event, __VA_ARGS__)

/* A logfmt value: bare when it can be, else in quotes with escapes; truncated to the buffer. Returns out. */
struct log_value {
    char text[320];
};
const char *log_quote(struct log_value *out, const char *text);
#define LOG_Q(text) log_quote(&(struct log_value){{0}}, (text))

#endif
