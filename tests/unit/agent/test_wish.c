#include "tests/unit/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "proto/rpc_codec.h"
#include "tests/unit/agent/wishes.h"

static int make_dir(void **state)
{
    char path[] = "/tmp/ddp-test-wish-XXXXXX";

    *state = mkdtemp(path) ? xstrdup(path) : NULL;
    return *state ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct err e;
    enum err_code code = file_remove_tree(*state, &e);

    free(*state);
    return code ? -1 : 0;
}

static struct card_store no_cards;

static enum err_code accept_wish(struct wish_store *w, int64_t epoch, int64_t revision, struct err *e)
{
    Ddp__V1__SpawnWish a = spawn_wish(revision, 0, 0), *spawns[] = {&a};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 1), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(epoch, revision, groups, 1);

    return wish_accept(w, &no_cards, &wish, e);
}

static void a_wish_survives_a_restart(void **state)
{
    struct wish_store w;
    struct err e;
    struct stat st;

    assert_ok(wish_open(&w, *state, &e), &e);
    assert_null(w.wish);
    assert_ok(accept_wish(&w, 2, 5, &e), &e);
    assert_int_equal(stat(w.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600); /* the wish contains tokens, so nobody else may read it */
    wish_close(&w);
    assert_ok(wish_open(&w, *state, &e), &e);
    assert_int_equal(w.wish->epoch, 2);
    assert_int_equal(w.wish->revision, 5);
    assert_int_equal(wish_group(w.wish, 7)->spawns[0]->spawn, 5);
    assert_null(wish_group(w.wish, 8));
    wish_close(&w);
}

static void an_older_wish_is_refused(void **state)
{
    static const struct {
        int64_t epoch, revision;
        bool good;
    } cases[] = {{2, 5, true}, {2, 4, false}, {1, 9, false}, {2, 5, true},
                 {2, 6, true}, {3, 1, true},  {2, 7, false}};
    struct wish_store w;
    struct err e;

    assert_ok(wish_open(&w, *state, &e), &e);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t kept = w.wish ? w.wish->revision : 0;

        assert_int_equal(accept_wish(&w, cases[i].epoch, cases[i].revision, &e),
                         cases[i].good ? ERR_OK : ERR_FAILED_PRECONDITION);
        assert_int_equal(w.wish->revision, cases[i].good ? cases[i].revision : kept);
    }
    wish_close(&w);
}

static void a_wish_that_cannot_be_written_is_kept_in_memory(void **state)
{
    struct wish_store w, again;
    struct err e;

    assert_ok(wish_open(&w, *state, &e), &e);
    assert_ok(accept_wish(&w, 2, 5, &e), &e);
    assert_int_equal(unlink(w.path), 0);
    assert_int_equal(mkdir(w.path, 0700), 0); /* the file cannot be written now */
    assert_int_not_equal(accept_wish(&w, 2, 6, &e), ERR_FAILED_PRECONDITION);
    assert_int_not_equal(accept_wish(&w, 2, 7, &e), ERR_FAILED_PRECONDITION);
    assert_int_equal(w.wish->revision, 5);
    assert_int_equal(w.unsaved->revision, 7);
    assert_int_equal(accept_wish(&w, 2, 6, &e), ERR_FAILED_PRECONDITION); /* older */
    assert_int_not_equal(wish_accept(&w, &no_cards, w.unsaved, &e), ERR_OK);
    assert_int_equal(w.unsaved->revision, 7);

    assert_int_equal(rmdir(w.path), 0);
    assert_ok(wish_accept(&w, &no_cards, w.unsaved, &e), &e);
    assert_null(w.unsaved);
    assert_int_equal(w.wish->revision, 7);
    assert_ok(wish_open(&again, *state, &e), &e);
    assert_int_equal(again.wish->revision, 7);
    wish_close(&again);
    wish_close(&w);
}

static void a_wish_of_another_cluster_is_refused_until_rejoin(void **state)
{
    Ddp__V1__Wish other = wish_of(9, 9, NULL, 0);
    struct wish_store w;
    struct err e;

    other.cluster_id = (char *)"c2";
    assert_ok(wish_open(&w, *state, &e), &e);
    assert_ok(accept_wish(&w, 1, 1, &e), &e);
    assert_int_equal(wish_accept(&w, &no_cards, &other, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "--rejoin"));
    assert_ok(wish_forget(&w, &e), &e);
    assert_ok(wish_accept(&w, &no_cards, &other, &e), &e);
    wish_close(&w);
}

static Ddp__V1__JobCard card_of(int64_t job, int64_t progress, bool ended, const char *data)
{
    Ddp__V1__JobCard card = DDP__V1__JOB_CARD__INIT;

    card.job = job;
    card.progress = progress;
    card.ended = ended;
    card.data.data = (uint8_t *)(uintptr_t)data;
    card.data.len = strlen(data);
    return card;
}

static void cards_are_kept_beside_the_wish(void **state)
{
    Ddp__V1__JobCard a = card_of(3, 10, false, "three"), b = card_of(4, 20, true, "four");
    Ddp__V1__JobCard *both[] = {&a, &b}, *gone[] = {&b}, *read;
    Ddp__V1__Wish wish = wish_of(1, 1, NULL, 0);
    struct card_store cards;
    struct wish_store w;
    struct err e;

    assert_ok(wish_open(&w, *state, &e), &e);
    assert_ok(cards_open(&cards, *state, &e), &e);
    wish.cards = both;
    wish.n_cards = 2;
    assert_ok(wish_accept(&w, &cards, &wish, &e), &e);
    assert_int_equal(w.wish->n_cards, 0);
    cards_close(&cards);
    assert_ok(cards_open(&cards, *state, &e), &e);
    assert_int_equal(cards.count, 2);
    assert_int_equal(cards.heads[0]->progress + cards.heads[1]->progress, 30);
    read = cards_read(&cards, 3);
    assert_memory_equal(read->data.data, "three", 5);
    rpc_free(read);
    b.data.len = 0;
    wish.cards = gone;
    wish.n_cards = 1;
    assert_ok(wish_accept(&w, &cards, &wish, &e), &e);
    assert_int_equal(cards.count, 1);
    assert_null(cards_read(&cards, 4));
    cards_forget(&cards);
    cards_close(&cards);
    assert_ok(cards_open(&cards, *state, &e), &e);
    assert_int_equal(cards.count, 0);
    cards_close(&cards);
    wish_close(&w);
}

static void the_newest_cards_of_ended_jobs_are_kept(void **state)
{
    struct card_store cards;
    struct err e;

    assert_ok(cards_open(&cards, *state, &e), &e);
    assert_int_equal(cards.ended_most, 1000);
    cards.ended_most = 10;
    for (int64_t job = 1; job <= 13; job++) {
        Ddp__V1__JobCard card = card_of(job, 1, job != 2, "x"), *one[] = {&card};
        assert_ok(cards_keep(&cards, one, 1, &e), &e);
    }
    assert_int_equal(cards.count, 11); /* the cards of ten ended jobs and of the one that runs */
    assert_null(cards_read(&cards, 1));
    assert_null(cards_read(&cards, 3));
    Ddp__V1__JobCard *live = cards_read(&cards, 2);
    assert_non_null(live);
    rpc_free(live);
    cards_close(&cards);
}

static void a_damaged_wish_is_an_error(void **state)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct wish_store w;
    struct err e;
    CLEANUP(free_text) char *path = xasprintf("%s/wish", (char *)*state);

    assert_ok(wish_open(&w, *state, &e), &e);
    assert_ok(accept_wish(&w, 1, 1, &e), &e);
    wish_close(&w);
    assert_ok(file_read(path, 1 << 20, &text, &e), &e);
    for (size_t at = 0; at < text.len; at += 7) {
        text.data[at] ^= 4;
        assert_ok(file_write_atomic(path, text.data, text.len, 0600, &e), &e);
        assert_int_equal(wish_open(&w, *state, &e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, path));
        text.data[at] ^= 4;
        assert_ok(file_write_atomic(path, text.data, at, 0600, &e), &e); /* a truncated file */
        assert_int_equal(wish_open(&w, *state, &e), ERR_DATA_LOSS);
    }
}

static void a_wish_tells_which_gpus_are_leased(void **state)
{
    char *uuids[] = {(char *)"GPU-1", (char *)"GPU-2"};
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, 0), b = spawn_wish(2, 1, DDP__V1__STOP_MODE__STOP_KILL);
    Ddp__V1__SpawnWish *spawns[] = {&a, &b};
    Ddp__V1__GroupWish empty = group_wish(6, NULL, 0), group = group_wish(7, spawns, 2);
    Ddp__V1__GroupWish *groups[] = {&empty, &group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);

    (void)state;
    assert_false(wish_any(NULL) || wish_any(&wish));
    b.gpu_uuids = uuids;
    b.n_gpu_uuids = 2;
    wish.n_groups = 2;
    assert_true(wish_any(&wish));
    assert_true(wish_leases(&wish, "GPU-2")); /* its worker may live until it is known to be dead */
    assert_false(wish_leases(&wish, "GPU-3") || wish_leases(NULL, "GPU-1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_wish_survives_a_restart, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(an_older_wish_is_refused, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_wish_that_cannot_be_written_is_kept_in_memory, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(a_wish_of_another_cluster_is_refused_until_rejoin, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(cards_are_kept_beside_the_wish, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_newest_cards_of_ended_jobs_are_kept, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_damaged_wish_is_an_error, make_dir, remove_dir),
        cmocka_unit_test(a_wish_tells_which_gpus_are_leased),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
