#ifndef DDP_CLIENT_WEB_PAGE_WEB_PAGE_H
#define DDP_CLIENT_WEB_PAGE_WEB_PAGE_H

#include <stddef.h>

/* The web page: UTF-8, with one element <style> and one element <script>, so that a content security policy can name them
 * by their hashes. A 0 follows the last byte. */
extern const size_t web_page_size;
extern const unsigned char web_page_html[];

#endif
