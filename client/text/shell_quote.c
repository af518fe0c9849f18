#include "client/text/shell_quote.h"

#include <string.h>

void shell_quote(struct buf *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@+%";
    if (*word && *word != '=' && !word[strspn(word, plain)]) { /* zsh replaces "=ls" by the path of ls */
        buf_puts(out, word);
        return;
    }
    buf_putc(out, '\'');
    for (; *word; word++)
        if (*word == '\'')
            buf_puts(out, "'\\''");
        else
            buf_putc(out, *word);
    buf_putc(out, '\'');
}
