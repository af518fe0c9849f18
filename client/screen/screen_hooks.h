#ifndef DDP_CLIENT_SCREEN_SCREEN_HOOKS_H
#define DDP_CLIENT_SCREEN_SCREEN_HOOKS_H

#include "client/text/term.h"
#include "proto/ddp.pb-c.h"

/* `ddpctl tell`: the hooks with their state, and what came of a test. */
void screen_hooks(const Ddp__V1__ListHooksReply *reply, const struct term *term, struct buf *out);
void screen_hook_test(const Ddp__V1__TestHookReply *reply, const struct term *term, struct buf *out);

#endif
