#ifndef DDP_DAEMON_COORDINATOR_WEB_WEB_ATTEMPTS_H
#define DDP_DAEMON_COORDINATOR_WEB_WEB_ATTEMPTS_H

#include <stdbool.h>
#include <stdint.h>

/* Counts the wrong tokens of failed logins, by address. After WEB_ATTEMPTS_MOST of them within a minute, an address
 * must wait until the minute is over. All addresses of an IPv6 /64 network count as one, because its owner can use all
 * of them. If there are more addresses than entries, a new address replaces the oldest entry. Any thread. */

#define WEB_ATTEMPTS_MOST 10

struct web_attempts;
struct web_attempts *web_attempts_create(void);
void web_attempts_free(struct web_attempts *a);
/* How long the address must wait; 0: it may try now. */
int64_t web_attempts_wait_ms(struct web_attempts *a, const char *address, int64_t now_ms);
/* Returns how many wrong tokens the address has sent within its minute, this one included. */
int web_attempts_add(struct web_attempts *a, const char *address, int64_t now_ms);

#endif
