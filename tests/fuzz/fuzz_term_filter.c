#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "client/text/term_filter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the length of the sequence after an ESC: '[', digits and separators, a final letter. Returns 0 if
 * the sequence may not pass. */
static size_t harmless_length(const char *text)
{
    size_t parameters = strspn(text + 1, "0123456789;:");

    return *text == '[' && text[1 + parameters] && strchr("mCDGK", text[1 + parameters]) ? parameters + 2 : 0;
}

/* However the input is cut, the output is the same. Its only controls are those that stay within the line,
 * and bytes from 0x80 to 0x9f occur only inside a character of UTF-8. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = {0}, parts = {0};
    struct term_filter one = {0}, many = {0};

    term_filter_add(&one, (const char *)data, size, &whole);
    term_filter_finish(&one, &whole);
    for (size_t i = 0; i < size; i++)
        term_filter_add(&many, (const char *)data + i, 1, &parts);
    term_filter_finish(&many, &parts);
    BUG_ON(whole.len != parts.len || (whole.len && memcmp(whole.data, parts.data, whole.len) != 0));
    for (size_t i = 0; i < whole.len; i++) {
        unsigned char c = (unsigned char)whole.data[i], before = i ? (unsigned char)whole.data[i - 1] : 0;

        if (c == 0x1b) {
            BUG_ON(!harmless_length(whole.data + i + 1));
            i += harmless_length(whole.data + i + 1);
            continue;
        }
        BUG_ON((c < 0x20 && !strchr("\n\r\b\t", c)) || c == 0 || c == 0x7f);
        BUG_ON(c >= 0x80 && c < 0xa0 && (before < 0x80 || before == 0xc2)); /* alone, or U+0080 to U+009F */
    }
    buf_release(&whole);
    buf_release(&parts);
    return 0;
}
