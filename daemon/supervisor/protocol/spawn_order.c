#include "daemon/supervisor/protocol/spawn_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static char *text_get(const json_t *obj, const char *key)
{
    return xstrdup(json_get_text(obj, key, NULL));
}

static void texts_put(struct jout *o, const char *key, char *const *list)
{
    if (!list)
        return;
    jout_open(o, key, '[');
    for (; *list; list++)
        jout_text(o, NULL, *list);
    jout_close(o, ']');
}

static char **texts_get(const json_t *obj, const char *key)
{
    const json_t *list = json_object_get(obj, key), *item;
    char **out = NULL;
    size_t i;

    if (!json_is_array(list))
        return NULL;
    json_array_foreach(list, i, item) if (json_is_string(item)) out =
        strv_append(out, json_string_value(item));
    return out;
}

void spawn_order_encode(struct jout *o, const struct spawn_order *s)
{
    jout_int(o, "spawn", s->spawn);
    /* the keys that an older supervisor reads, as in the record */
    jout_int(o, "generation", s->first_generation);
    jout_int(o, "local_rank", s->first_local_rank);
    jout_text(o, "id", s->id);
    jout_text(o, "owner", s->owner);
    texts_put(o, "argv", s->argv);
    texts_put(o, "env", s->env);
    jout_text(o, "workdir", s->workdir);
    jout_text(o, "log_dir", s->log_dir);
    if (s->token)
        jout_text(o, "token", s->token);
    if (s->user)
        jout_text(o, "user", s->user);
    texts_put(o, "gpu_uuids", s->gpu_uuids);
    texts_put(o, "preload", s->preload);
    texts_put(o, "capture", s->capture);
    jout_int(o, "gpu_slots", s->gpu_slots);
    jout_int(o, "master_port", s->master_port);
    jout_bool(o, "store", s->store);
    jout_bool(o, "native", s->native);
    if (s->foreground)
        jout_bool(o, "foreground", true);
    jout_int(o, "lease_sent", s->lease_sent);
    jout_int(o, "lease_ms", s->lease_ms);
    jout_int(o, "grace_ms", s->grace_ms);
}

enum err_code spawn_order_decode(struct spawn_order *s, const json_t *obj, struct err *e)
{
    /* members with a default may be missing: an older agent does not send them */
    s->spawn = json_get_int(obj, "spawn", 0);
    s->first_generation = json_get_int(obj, "generation", 0);
    s->first_local_rank = (int)json_get_int(obj, "local_rank", 0);
    s->id = text_get(obj, "id");
    s->owner = text_get(obj, "owner");
    s->argv = texts_get(obj, "argv");
    s->env = texts_get(obj, "env");
    s->workdir = text_get(obj, "workdir");
    s->log_dir = text_get(obj, "log_dir");
    s->token = text_get(obj, "token");
    s->user = text_get(obj, "user");
    s->gpu_uuids = texts_get(obj, "gpu_uuids");
    s->preload = texts_get(obj, "preload");
    s->capture = texts_get(obj, "capture");
    s->gpu_slots = (int)json_get_int(obj, "gpu_slots", 1);
    s->master_port = (int)json_get_int(obj, "master_port", 0);
    s->store = json_get_bool(obj, "store", false) && s->master_port;
    s->native = json_get_bool(obj, "native", false);
    s->foreground = json_get_bool(obj, "foreground", false);
    s->lease_sent = json_get_int(obj, "lease_sent", 0);
    s->lease_ms = json_get_int(obj, "lease_ms", 0);
    s->grace_ms = json_get_int(obj, "grace_ms", 0);
    if (s->spawn <= 0 || !s->id || !s->owner || !s->argv || !s->log_dir)
        return err_set(e, ERR_INVALID_ARGUMENT, "start order without spawn, id, owner, argv or log_dir");
    return ERR_OK;
}

void spawn_order_release(struct spawn_order *s)
{
    free(s->id);
    free(s->owner);
    strv_free(s->argv);
    strv_free(s->env);
    free(s->workdir);
    free(s->log_dir);
    free(s->token);
    free(s->user);
    strv_free(s->gpu_uuids);
    strv_free(s->preload);
    strv_free(s->capture);
    memset(s, 0, sizeof(*s));
}
