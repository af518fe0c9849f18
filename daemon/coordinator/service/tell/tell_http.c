#include "daemon/coordinator/service/tell/tell_http.h"

#include <ctype.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/net/web_url.h"

/* Normal sequence: tell_http_post puts a request into `incoming` and wakes the thread. The thread hands it to libcurl's
 * multi handle, which works on all requests at once. A finished request goes into `finished`, and the loop is woken,
 * which calls `done`.
 *
 * Failure modes: each request has a time limit, so one that hangs delays no other. With CURLOPT_QUICK_EXIT libcurl does
 * not wait for a hanging resolver when it gives up a request. */

#define CONNECT_MS 5000
#define ANSWER_SHOWN 160        /* bytes of the answer in a result */
#define ANSWER_MOST (256 << 10) /* a longer answer is not read to its end */
#define RETRY_MOST_MS 3600000LL /* of Retry-After */
#define POLL_MS 1000

struct http_job {
    struct http_job *next;
    char *url, *body;
    char **headers;
    size_t size;
    int64_t timeout_ms;
    bool public_only, was_private;
    tell_done_fn done;
    void *user;
    /* used on the thread only */
    CURL *easy;
    struct curl_slist *list;
    char answer[ANSWER_SHOWN + 1];
    size_t answer_len, answer_all;
    char error[CURL_ERROR_SIZE];
    struct tell_result result;
};

struct tell_http {
    uv_async_t async;
    pthread_t thread;
    pthread_mutex_t lock; /* of the next three */
    struct http_job *incoming, *finished;
    bool stop;
    CURLM *multi;
    struct http_job *active; /* of the thread */
    char *ca;
    bool ca_only; /* trust only `ca`, not the system's certificates */
};

static void http_job_free(struct http_job *job)
{
    free(job->url);
    free(job->body);
    strv_free(job->headers);
    free(job);
}

static void http_list_push(struct http_job **list, struct http_job *job)
{
    while (*list)
        list = &(*list)->next;
    job->next = NULL;
    *list = job;
}

/* ---- on the thread */

static size_t answer_take(char *data, size_t one, size_t count, void *user)
{
    struct http_job *job = user;
    const size_t size = one * count, room = ANSWER_SHOWN - job->answer_len;
    const size_t take = size < room ? size : room;
    memcpy(job->answer + job->answer_len, data, take);
    job->answer_len += take;
    job->answer_all += size;
    return job->answer_all > ANSWER_MOST ? 0 : size;
}

/* Checks the address at the moment of the connection, because the host's name may have got another address since the
 * last check. */
static curl_socket_t socket_open(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct http_job *job = user;
    (void)purpose;
    if (job->public_only && web_address_private(&address->addr)) {
        job->was_private = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Makes the text one line without control characters, and hides the URL's path, which is a secret that the answer may
 * repeat. */
static void result_clean(const struct http_job *job, char *text)
{
    for (char *p = text; *p; p++)
        if (iscntrl((unsigned char)*p))
            *p = ' ';
    web_url_hide(text, job->url);
}

static void result_of_status(struct http_job *job, long status)
{
    struct tell_result *r = &job->result;
    curl_off_t after = 0;
    r->ok = status >= 200 && status < 300;
    r->refused = status >= 300 && status < 500 && status != 408 && status != 425 && status != 429;
    if (!r->ok && curl_easy_getinfo(job->easy, CURLINFO_RETRY_AFTER, &after) == CURLE_OK && after > 0)
        r->retry_ms = after < RETRY_MOST_MS / 1000 ? (int64_t)after * 1000 : RETRY_MOST_MS;
    const char *redirected = status >= 300 && status < 400 ? " (redirections are not followed)" : "";
    snprintf(r->text, sizeof r->text, "HTTP %ld%s%s%s", status, redirected, job->answer_len ? ": " : "",
             job->answer);
}

static void result_of_failure(struct http_job *job, CURLcode code)
{
    struct tell_result *r = &job->result;
    r->refused = job->was_private;
    if (job->was_private)
        snprintf(r->text, sizeof r->text, "the host has no public address, and tell.allow does not name it");
    else if (code == CURLE_OPERATION_TIMEDOUT)
        snprintf(r->text, sizeof r->text, "no answer within %lld ms", (long long)job->timeout_ms);
    else
        snprintf(r->text, sizeof r->text, "%s", *job->error ? job->error : curl_easy_strerror(code));
}

static void http_job_end(struct tell_http *h, struct http_job *job, CURLcode code)
{
    long status = 0;
    curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &status);
    /* For an answer that is too long, the status counts. */
    if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && status))
        result_of_status(job, status);
    else
        result_of_failure(job, code);
    result_clean(job, job->result.text);
    curl_multi_remove_handle(h->multi, job->easy);
    curl_easy_cleanup(job->easy);
    curl_slist_free_all(job->list);
    job->easy = NULL;
    job->list = NULL;
    struct http_job **at = &h->active;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    pthread_mutex_lock(&h->lock);
    http_list_push(&h->finished, job);
    pthread_mutex_unlock(&h->lock);
    uv_async_send(&h->async);
}

static void http_job_begin(struct tell_http *h, struct http_job *job)
{
    CURL *easy = job->easy = curl_easy_init();
    BUG_ON(!easy);
    for (char **line = job->headers; line && *line; line++)
        job->list = curl_slist_append(job->list, *line);
    curl_easy_setopt(easy, CURLOPT_URL, job->url);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, job->body);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)job->size);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, job->list);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "ddp/" DDP_VERSION);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)job->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, answer_take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, job);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, socket_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, job);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, job->error);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, job);
    if (job->public_only) {
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
        /* No connection is reused: another hook may have opened one to the same name at a private address. */
        curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    }
    if (h->ca)
        curl_easy_setopt(easy, CURLOPT_CAINFO, h->ca);
    if (h->ca_only) /* libcurl may have been built with a default directory of authorities, which must not be used */
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    job->next = h->active;
    h->active = job;
    BUG_ON(curl_multi_add_handle(h->multi, easy) != CURLM_OK);
}

static void http_take_finished(struct tell_http *h)
{
    const CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(h->multi, &left)))
        if (message->msg == CURLMSG_DONE) {
            const CURLcode code = message->data.result; /* the message ends with the handle */
            char *job;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &job);
            http_job_end(h, (struct http_job *)(void *)job, code);
        }
}

static void *http_thread(void *arg)
{
    struct tell_http *h = arg;
    for (;;) {
        pthread_mutex_lock(&h->lock);
        struct http_job *job = steal(h->incoming);
        const bool stop = h->stop;
        pthread_mutex_unlock(&h->lock);
        for (struct http_job *next; job; job = next) {
            next = job->next;
            http_job_begin(h, job);
        }
        if (stop)
            break;
        int running;
        curl_multi_perform(h->multi, &running);
        http_take_finished(h);
        curl_multi_poll(h->multi, NULL, 0, POLL_MS, NULL);
    }
    while (h->active)
        http_job_end(h, h->active, CURLE_ABORTED_BY_CALLBACK);
    return NULL;
}

/* ---- on the loop */

static void http_on_async(uv_async_t *async)
{
    struct tell_http *h = async->data;
    pthread_mutex_lock(&h->lock);
    struct http_job *job = steal(h->finished);
    pthread_mutex_unlock(&h->lock);
    for (struct http_job *next; job; job = next) {
        next = job->next;
        job->done(job->user, &job->result);
        http_job_free(job);
    }
}

/* The libcurl of a relocatable bundle was built on another system, which may keep its certificates elsewhere. NULL:
 * libcurl looks in its own default place. */
static const char *system_certificates(void)
{
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                        "/etc/ssl/cert.pem"};
    const char *named = getenv("SSL_CERT_FILE");
    if (named && *named)
        return named;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (access(files[i], R_OK) == 0)
            return files[i];
    return NULL;
}

enum err_code tell_http_open(struct tell_http **out, uv_loop_t *loop, const char *ca, struct err *e)
{
    struct tell_http *h = xcalloc(1, sizeof *h);
    BUG_ON(curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK);
    h->multi = curl_multi_init();
    BUG_ON(!h->multi);
    pthread_mutex_init(&h->lock, NULL);
    const int rc = pthread_create(&h->thread, NULL, http_thread, h);
    if (rc != 0) {
        curl_multi_cleanup(h->multi);
        tell_http_free(h);
        return err_sys(e, rc, "a thread for hooks");
    }
    h->ca_only = ca != NULL;
    h->ca = xstrdup(ca ? ca : system_certificates()); /* the thread reads it with its first request */
    uv_async_init(loop, &h->async, http_on_async);
    h->async.data = h;
    *out = h;
    return ERR_OK;
}

void tell_http_post(struct tell_http *h, const struct tell_request *request, tell_done_fn done, void *user)
{
    struct http_job *job = xcalloc(1, sizeof *job);
    job->url = xstrdup(request->url);
    job->body = xmemdup(request->body, request->size + 1);
    job->size = request->size;
    job->headers = strv_dup(request->headers);
    job->timeout_ms = request->timeout_ms;
    job->public_only = request->public_only;
    job->done = done;
    job->user = user;
    pthread_mutex_lock(&h->lock);
    http_list_push(&h->incoming, job);
    pthread_mutex_unlock(&h->lock);
    curl_multi_wakeup(h->multi);
}

void tell_http_stop(struct tell_http *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_mutex_unlock(&h->lock);
    curl_multi_wakeup(h->multi);
    pthread_join(h->thread, NULL);
    uv_close((uv_handle_t *)&h->async, NULL);
    curl_multi_cleanup(h->multi);
}

void tell_http_free(struct tell_http *h)
{
    if (!h)
        return;
    for (struct http_job *job = h->finished, *next; job; job = next) {
        next = job->next;
        http_job_free(job);
    }
    pthread_mutex_destroy(&h->lock);
    free(h->ca);
    free(h);
}
