#ifndef DDP_BASE_WEB_WEB_PAGE_H
#define DDP_BASE_WEB_WEB_PAGE_H

#include "base/buf.h"

/* The page that GET / answers: one HTML file with its scripts and styles inside. Any thread. */
struct web_page {
    const char *html; /* borrowed */
    size_t size;
    struct buf zipped; /* gzip */
    /* Content-Security-Policy: allows the page's own scripts and styles by their hashes, requests to its own origin, and
     * nothing else */
    char *policy;
};

void web_page_init(struct web_page *page, const char *html, size_t size);
void web_page_release(struct web_page *page);

#endif
