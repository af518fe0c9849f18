#ifndef DDP_BASE_LOG_H
#define DDP_BASE_LOG_H

/* One logfmt line to stderr: `ts=... level=info prog=ddp-agent event=node_joined job=7 gen=3`. Fixed keys
 * where they apply: job gen rank node pid rpc. error: someone must act; warn: the program coped; info: a state
 * changed; debug: the rest. Libraries return errors; the caller that handles an error logs it, once. A line is one
 * write(2). Any thread. */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Call once, before other threads start. */
void log_init(const char *program,
              enum log_level least); /* DDP_LOG=debug|info|warn|error in the environment takes precedence */

/* fmt makes the key=value part; the caller quotes values that may contain spaces (log_quote). */
void log_line(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define log_debug(event, ...) log_line(LOG_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...) log_line(LOG_INFO, event, __VA_ARGS__)
#define log_warn(event, ...) log_line(LOG_WARN, event, __VA_ARGS__)
#define log_error(event, ...) log_line(LOG_ERROR, event, __VA_ARGS__)

/* Writes a logfmt value: in quotes with escapes if necessary, truncated to the buffer. Control characters, which a terminal
 * would execute, become '?'. Returns out. */
struct log_value {
    char text[320];
};
const char *log_quote(struct log_value *out, const char *text);
#define LOG_Q(text) log_quote(&(struct log_value){{0}}, (text))

#endif
