#include "base/web/web_page.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/crypto/id.h"
#include "base/err.h"
#include "base/mem.h"

#define GZIP_WINDOW (15 + 16) /* zlib's number for a gzip header */

static void page_put_base64(struct buf *out, const uint8_t *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        const unsigned b = i + 1 < size ? data[i + 1] : 0, c = i + 2 < size ? data[i + 2] : 0;
        const unsigned word = (unsigned)data[i] << 16 | b << 8 | c;
        buf_putc(out, digits[word >> 18]);
        buf_putc(out, digits[word >> 12 & 63]);
        buf_putc(out, i + 1 < size ? digits[word >> 6 & 63] : '=');
        buf_putc(out, i + 2 < size ? digits[word & 63] : '=');
    }
}

/* Appends " 'sha256-...'" for the text of each element with this name. */
static void page_put_hashes(const struct web_page *page, const char *name, struct buf *out)
{
    CLEANUP(free_text) char *begin = xasprintf("<%s>", name);
    CLEANUP(free_text) char *finish = xasprintf("</%s>", name);
    const char *at = page->html, *end = page->html + page->size;
    while ((at = memmem(at, (size_t)(end - at), begin, strlen(begin)))) {
        uint8_t digest[DIGEST_BYTES];
        at += strlen(begin);
        const char *stop = memmem(at, (size_t)(end - at), finish, strlen(finish));
        if (!stop)
            return;
        digest_sha256(digest, at, (size_t)(stop - at));
        buf_puts(out, " 'sha256-");
        page_put_base64(out, digest, sizeof(digest));
        buf_puts(out, "'");
        at = stop;
    }
}

static void page_zip(const struct web_page *page, struct buf *out)
{
    z_stream z = {0};
    if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 9, Z_DEFAULT_STRATEGY) != Z_OK)
        return; /* no memory: the page is sent uncompressed */
    const uLong most = deflateBound(&z, (uLong)page->size);
    buf_reserve(out, most + 1);
    z.next_in = (Bytef *)(uintptr_t)page->html;
    z.avail_in = (uInt)page->size;
    z.next_out = (Bytef *)out->data;
    z.avail_out = (uInt)most;
    BUG_ON(deflate(&z, Z_FINISH) != Z_STREAM_END);
    out->len = z.total_out;
    deflateEnd(&z);
}

void web_page_init(struct web_page *page, const char *html, size_t size)
{
    struct buf policy = {0};
    *page = (struct web_page){.html = html, .size = size};
    buf_puts(&policy, "default-src 'none'; script-src");
    page_put_hashes(page, "script", &policy);
    buf_puts(&policy, "; style-src");
    page_put_hashes(page, "style", &policy);
    buf_puts(&policy, "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
    page->policy = buf_steal(&policy);
    page_zip(page, &page->zipped);
}

void web_page_release(struct web_page *page)
{
    buf_release(&page->zipped);
    free(page->policy);
    *page = (struct web_page){0};
}
