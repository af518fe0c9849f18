/* attention_cudnn.h for a plugin that is built without cuDNN: our own kernels do all attention. */
#include "trainer/device/cuda/cudnn/attention_cudnn.h"

enum err_code attention_cudnn_version(char out[ATTENTION_VERSION], struct err *e)
{
    out[0] = '\0';
    return err_set(e, ERR_UNAVAILABLE, "cuDNN: the plugin was built without it");
}

enum err_code attention_cudnn_open(struct attention_cudnn **out, cudaStream_t stream, int64_t most,
                                   struct err *e)
{
    (void)stream, (void)most;
    *out = NULL;
    return err_set(e, ERR_UNAVAILABLE, "cuDNN: the plugin was built without it");
}

void attention_cudnn_free(struct attention_cudnn *c)
{
    BUG_ON(c);
}

const char *attention_cudnn_name(const struct attention_cudnn *c)
{
    BUG_ON(!c);
    return "";
}

enum err_code attention_cudnn_prepare(struct attention_cudnn *c, const struct device_attention *h,
                                      bool backward, bool make, size_t *room, struct err *e)
{
    (void)c, (void)h, (void)backward, (void)make, (void)room;
    return err_set(e, ERR_UNIMPLEMENTED, "cuDNN: the plugin was built without it");
}

int64_t attention_cudnn_engine(struct attention_cudnn *c, const struct device_attention *h, bool backward)
{
    (void)c, (void)h, (void)backward;
    return -1;
}

enum err_code attention_cudnn_forward(struct attention_cudnn *c, const struct device_attention *h, void *room,
                                      struct err *e)
{
    (void)c, (void)h, (void)room;
    return err_set(e, ERR_UNIMPLEMENTED, "cuDNN: the plugin was built without it");
}

enum err_code attention_cudnn_backward(struct attention_cudnn *c, const struct device_attention *h,
                                       const void *d_o, void *dqkv, void *room, struct err *e)
{
    (void)c, (void)h, (void)d_o, (void)dqkv, (void)room;
    return err_set(e, ERR_UNIMPLEMENTED, "cuDNN: the plugin was built without it");
}
