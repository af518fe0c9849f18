#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

/* Runs a fuzz target in builds without libFuzzer: with every seed, with 16 truncations of it, and with a
 * fixed number of mutations of it. The mutations come from a fixed random sequence, so a failure can be
 * repeated. */

enum { MUTATIONS = 400, EDITS = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int main(int argc, char **argv);

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t draw_below(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

/* The copy has exactly the input's size, so AddressSanitizer sees a read past the end. */
static void run_copy(const char *data, size_t size)
{
    uint8_t *copy = xmemdup(data, size);

    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void edit_bytes(struct buf *b)
{
    static const char tokens[] = "{}[]:,\"'\\-?#&*!|>%@\n\t \0\xff\x80\x01"
                                 "0919";
    size_t at = draw_below(b->len), n = 1 + draw_below(8);

    if (!b->len)
        return;
    switch (draw_below(4)) {
    case 0:
        b->data[at] = (char)(b->data[at] ^ (1 << draw_below(8)));
        break;
    case 1:
        b->data[at] = tokens[draw_below(sizeof(tokens) - 1)];
        break;
    case 2: /* removes a few bytes */
        n = n < b->len - at ? n : b->len - at;
        memmove(b->data + at, b->data + at + n, b->len - at - n);
        b->len -= n;
        break;
    default: /* appends a copy of a few bytes */
        n = n < b->len - at ? n : b->len - at;
        buf_append(b, "", 0);
        for (size_t i = 0; i < n; i++)
            buf_putc(b, b->data[at + i]);
    }
}

static void run_seed(const struct buf *seed)
{
    run_copy(seed->data, seed->len);
    for (size_t cut = 0; cut < 16; cut++)
        run_copy(seed->data, seed->len * cut / 16);
    for (int i = 0; i < MUTATIONS; i++) {
        CLEANUP(buf_release) struct buf b = {0};

        buf_append(&b, seed->data, seed->len);
        for (uint64_t edits = 1 + draw_below(EDITS); edits; edits--)
            edit_bytes(&b);
        run_copy(b.data, b.len);
    }
}

int main(int argc, char **argv)
{
    struct dirent **names;
    int count = argc == 2 ? scandir(argv[1], &names, NULL, alphasort) : -1, ran = 0;

    if (count < 0) {
        fprintf(stderr, "usage: %s SEED-DIRECTORY\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < count; i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", argv[1], names[i]->d_name);
        CLEANUP(buf_release) struct buf seed = {0};
        struct err e = {0};

        if (names[i]->d_name[0] != '.') {
            if (file_read(path, 1 << 24, &seed, &e)) {
                fprintf(stderr, "%s\n", e.msg);
                return 1;
            }
            run_seed(&seed);
            ran++;
        }
        free(names[i]);
    }
    free(names);
    printf("%d seeds, %d inputs\n", ran, ran * (17 + MUTATIONS));
    return ran ? 0 : 1;
}
