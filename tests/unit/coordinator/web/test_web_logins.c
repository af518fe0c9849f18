/* Logins to the page: when they end, and what the users share. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/web/web_logins.h"

#define HOURS_12 (12 * 3600 * 1000LL)

struct accounts {
    int opened, closed;
    bool fail;
};

static enum err_code open_account(void *user, const char *name, struct web_levels *levels, void **out,
                                  struct err *e)
{
    struct accounts *accounts = user;
    if (accounts->fail)
        return err_set(e, ERR_UNAVAILABLE, "no account for %s", name);
    assert_non_null(levels);
    accounts->opened++;
    *out = accounts;
    return ERR_OK;
}

static void close_account(void *user, void *opened)
{
    assert_ptr_equal(user, opened);
    ((struct accounts *)user)->closed++;
}

static struct web_logins *logins_of(struct accounts *accounts)
{
    return web_logins_create(&(struct web_logins_hooks){accounts, open_account, close_account});
}

static void add(struct web_logins *l, const char *user, int64_t now, char secret[WEB_KEY_TEXT])
{
    struct err e;
    assert_int_equal(web_logins_add(l, user, now, secret, &e), ERR_OK);
}

static bool is_there(struct web_logins *l, const char *secret, int64_t now)
{
    struct web_login *login = web_logins_find(l, secret, now);
    if (login)
        web_logins_give_back(l, login);
    return login;
}

static void a_login_ends_after_twelve_hours(void **state)
{
    struct accounts accounts = {0};
    struct web_logins *l = logins_of(&accounts);
    char early[WEB_KEY_TEXT], late[WEB_KEY_TEXT];
    (void)state;
    add(l, "ana", 1000, early);
    add(l, "ana", 2000, late);
    assert_true(is_there(l, early, 1000 + HOURS_12 - 1));
    assert_false(is_there(l, early, 1000 + HOURS_12)); /* also before the next tick */
    struct web_login *login = web_logins_find(l, early, 1000);
    web_logins_expire(l, 1000 + HOURS_12 - 1);
    assert_false(login->ended);
    const uint64_t owner = login->owner;
    web_logins_expire(l, 1000 + HOURS_12);
    assert_true(login->ended);
    assert_false(is_there(l, early, 1000));
    assert_true(is_there(l, late, 1000));
    web_logins_give_back(l, login);
    web_logins_free(l);
    assert_int_equal(accounts.opened, 1);
    assert_int_equal(accounts.closed, 1);
    /* A new account of the same user counts as the same owner of connections. */
    l = logins_of(&accounts);
    add(l, "ben", 1000, late);
    add(l, "ana", 1000, early);
    login = web_logins_find(l, early, 1000);
    assert_int_equal(login->owner, owner);
    web_logins_give_back(l, login);
    login = web_logins_find(l, late, 1000);
    assert_int_not_equal(login->owner, owner);
    web_logins_give_back(l, login);
    web_logins_free(l);
}

/* Whoever reads this process's memory finds no secret. */
static void the_secret_is_not_kept(void **state)
{
    struct accounts accounts = {0};
    struct web_logins *l = logins_of(&accounts);
    char secret[WEB_KEY_TEXT];
    (void)state;
    add(l, "ana", 0, secret);
    struct web_login *login = web_logins_find(l, secret, 0);
    for (size_t at = 0; at + 16 <= 88; at++) /* the login's own memory */
        assert_memory_not_equal((const char *)login + at, secret, 16);
    web_logins_give_back(l, login);
    char other[WEB_KEY_TEXT];
    memcpy(other, secret, sizeof(other));
    other[0] = other[0] == '0' ? '1' : '0';
    assert_false(is_there(l, other, 0));
    assert_false(is_there(l, "", 0));
    web_logins_free(l);
}

static int woken;

static void note_wake(struct web_viewer *viewer)
{
    (void)viewer;
    woken++;
}

static void wait_for_change(struct web_viewer *viewer)
{
    viewer->wake = note_wake;
}

static void a_revoked_token_ends_the_logins_of_its_user(void **state)
{
    struct accounts accounts = {0};
    struct web_logins *l = logins_of(&accounts);
    char one[WEB_KEY_TEXT], two[WEB_KEY_TEXT], other[WEB_KEY_TEXT], again[WEB_KEY_TEXT], user[WEB_USER_TEXT];
    struct web_viewer viewer = {0};
    (void)state;
    add(l, "ana", 0, one);
    add(l, "ana", 0, two);
    add(l, "ben", 0, other);
    struct web_login *held = web_logins_hold(l, web_logins_find(l, one, 0));
    web_logins_give_back(l, held);
    const uint64_t number = web_login_number(held);
    assert_true(web_logins_user(l, number, user));
    assert_string_equal(user, "ana");
    web_levels_enter(held->levels, &viewer, NULL);
    assert_null(web_levels_next(held->levels, &viewer, wait_for_change));
    woken = 0;
    web_logins_end_user(l, "ana");
    assert_true(held->ended);
    assert_true(woken > 0);
    assert_false(is_there(l, one, 0) || is_there(l, two, 0));
    assert_true(is_there(l, other, 0));
    assert_false(web_logins_user(l, number, user));
    assert_false(web_logins_has_user(l, "ana"));
    assert_true(web_logins_has_user(l, "ben"));

    /* the next login sees nothing that the earlier one could see */
    add(l, "ana", 0, again);
    struct web_login *fresh = web_logins_find(l, again, 0);
    assert_ptr_not_equal(fresh->levels, held->levels);
    assert_true(web_login_number(fresh) > number);
    web_levels_leave(held->levels, &viewer);
    web_logins_give_back(l, held);
    web_logins_give_back(l, fresh);
    web_logins_free(l);
    assert_int_equal(accounts.opened, 3);
    assert_int_equal(accounts.closed, 3);
}

static void logins_of_a_user_share_what_they_see(void **state)
{
    struct accounts accounts = {0};
    struct web_logins *l = logins_of(&accounts);
    char one[WEB_KEY_TEXT], two[WEB_KEY_TEXT], other[WEB_KEY_TEXT];
    (void)state;
    add(l, "ana", 0, one);
    add(l, "ana", 0, two);
    add(l, "ben", 0, other);
    struct web_login *a = web_logins_find(l, one, 0), *b = web_logins_find(l, two, 0),
                     *c = web_logins_find(l, other, 0);
    assert_ptr_equal(a->levels, b->levels);
    assert_ptr_not_equal(a->levels, c->levels);
    web_logins_end(l, a);
    assert_true(a->ended && !b->ended);
    web_logins_end(l, a); /* twice */
    web_logins_give_back(l, a);
    web_logins_give_back(l, b);
    web_logins_give_back(l, c);
    web_logins_free(l);
}

static void the_oldest_of_too_many_logins_ends(void **state)
{
    struct accounts accounts = {0};
    struct web_logins *l = logins_of(&accounts);
    char first[WEB_KEY_TEXT], second[WEB_KEY_TEXT], more[WEB_KEY_TEXT], name[16];
    struct err e;
    (void)state;
    add(l, "ana", 0, first);
    add(l, "ana", 0, second);
    for (int i = 2; i < 32; i++)
        add(l, "ana", 0, more);
    assert_true(is_there(l, first, 0));
    add(l, "ana", 0, more);
    assert_false(is_there(l, first, 0));
    assert_true(is_there(l, second, 0) && is_there(l, more, 0));

    for (int i = 1; i < 64; i++) {
        snprintf(name, sizeof(name), "user%d", i);
        add(l, name, 0, more);
    }
    assert_int_equal(web_logins_add(l, "one-more", 0, more, &e), ERR_RESOURCE_EXHAUSTED);
    add(l, "ana", 0, more);
    web_logins_end_user(l, "user7"); /* makes room */
    add(l, "one-more", 0, more);
    assert_int_equal(accounts.closed, 1);
    accounts.fail = true;
    web_logins_end_user(l, "user8");
    assert_int_equal(web_logins_add(l, "another", 0, more, &e), ERR_UNAVAILABLE);
    web_logins_expire(l, HOURS_12);
    assert_false(is_there(l, second, 0));
    web_logins_free(l);
    assert_int_equal(accounts.closed, accounts.opened);
}

/* 64 users who logged in once and left do not keep the next one out. */
static void an_idle_user_makes_room_for_another(void **state)
{
    struct accounts accounts = {0};
    struct web_logins *l = logins_of(&accounts);
    char secrets[64][WEB_KEY_TEXT], more[WEB_KEY_TEXT], name[16];
    struct err e;
    (void)state;
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof(name), "user%d", i);
        add(l, name, i, secrets[i]);
    }
    assert_true(is_there(l, secrets[0], 1000)); /* has made a request since */
    struct web_login *watched = web_logins_find(l, secrets[1], 1000);
    web_logins_expire(l, 60000);
    assert_int_equal(web_logins_add(l, "one-more", 60001, more, &e), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(accounts.closed, 0);
    add(l, "one-more", 60002, more); /* user2 has been idle for a minute, and for longer than all others */
    assert_int_equal(accounts.closed, 1);
    assert_false(is_there(l, secrets[2], 60002));
    for (int i = 0; i < 64; i++)
        assert_true(i == 2 || is_there(l, secrets[i], 60002));
    assert_true(is_there(l, more, 60002));

    web_logins_give_back(l, watched); /* it was in use at the last tick */
    assert_int_equal(web_logins_add(l, "two-more", 60003, more, &e), ERR_RESOURCE_EXHAUSTED);
    web_logins_free(l);
    assert_int_equal(accounts.closed, accounts.opened);
}

/* A screen on the wall stays logged in while somebody logs in again and again with the same token. */
static void a_login_that_is_used_outlives_idle_ones(void **state)
{
    struct accounts accounts = {0};
    struct web_logins *l = logins_of(&accounts);
    char wall[WEB_KEY_TEXT], asks[WEB_KEY_TEXT], first[WEB_KEY_TEXT], more[WEB_KEY_TEXT];
    (void)state;
    add(l, "ana", 0, wall);
    add(l, "ana", 0, asks);
    add(l, "ana", 0, first);
    struct web_login *stream = web_logins_find(l, wall, 0);
    for (int i = 1; i <= 100; i++) {
        assert_true(is_there(l, asks, i));
        add(l, "ana", i, more);
    }
    assert_true(is_there(l, wall, 100) && is_there(l, asks, 100) && is_there(l, more, 100));
    assert_false(is_there(l, first, 100));
    web_logins_give_back(l, stream);
    web_logins_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_login_ends_after_twelve_hours),
        cmocka_unit_test(the_secret_is_not_kept),
        cmocka_unit_test(a_revoked_token_ends_the_logins_of_its_user),
        cmocka_unit_test(logins_of_a_user_share_what_they_see),
        cmocka_unit_test(the_oldest_of_too_many_logins_ends),
        cmocka_unit_test(an_idle_user_makes_room_for_another),
        cmocka_unit_test(a_login_that_is_used_outlives_idle_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
