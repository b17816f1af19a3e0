/* test_stops.c - stop texts: found as soon as they are complete, across tokens and inside
 * one, and cut off the answer. */
#include "ask/stops.h"
#include "test.h"

typedef struct {
    const char *name, *says;
    const char *stop[3];
    int n;
    const char *text;
    bool found;
} Case;
static const Case cases[] = {
    { "in the middle", "one two STOP three", { "STOP" }, 1, "one two ", true },
    { "at the start", "STOP three", { "STOP" }, 1, "", true },
    { "at the very end", "one STOP", { "STOP" }, 1, "one ", true },
    { "the first of two", "a # b ; c", { ";", "#" }, 2, "a ", true },
    { "of two that end together the earlier", "x <end>", { "end>", "<end>" }, 2, "x ", true },
    { "only a beginning of it", "one STO two STO", { "STOP" }, 1, "one STO two STO", false },
    { "a false start before it", "one STSTOP two", { "STOP" }, 1, "one ST", true },
    { "letters of several bytes", "caf\xc3\xa9 \xe2\x82\xac 5", { "\xe2\x82\xac" }, 1, "caf\xc3\xa9 ", true },
    { "one byte of such a letter is none", "caf\xc3\xa9", { "\xe2\x82\xac" }, 1, "caf\xc3\xa9", false },
    { "a line end", "first\nsecond\n", { "\n\n", "\n" }, 2, "first", true },
    { "nothing said", "", { "STOP" }, 1, "", false },
};

static void one(const Case *c, const Tok *tok, TokScratch *scratch) {
    TokIds ids = { 0 };
    Err err = { { 0 } };
    CHECK(tok_encode(tok, scratch, c->says, strlen(c->says), 0, &ids, &err), "%s", err.msg);
    Stops *s = stops_open(tok, c->stop, c->n);
    bool found = false;
    size_t used = 0;
    size_t shown = 0;
    while (used < ids.n && !found) {
        size_t n;
        found = stops_push(s, ids.at[used++]);
        const char *so_far = stops_settled(s, &n);
        EXPECT(n >= shown && n <= strlen(c->text) && !memcmp(so_far, c->text, n), "%s: \"%.*s\" was shown", c->name,
               (int)n, so_far);
        shown = n;
    }
    EXPECT(!found || shown == strlen(c->text), "%s: %zu bytes shown of %zu", c->name, shown, strlen(c->text));
    Buf text = { 0 }, said = { 0 };
    stops_text(s, &text);
    EXPECT(found == c->found, "%s: found %d", c->name, found);
    EXPECT(text.n == strlen(c->text) && (!text.n || !memcmp(text.data, c->text, text.n)), "%s: \"%.*s\", not \"%s\"",
           c->name, (int)text.n, text.data ? text.data : "", c->text);
    if (found && used > 1) { /* without the last token it was not there yet */
        CHECK(tok_decode(tok, ids.at, used - 1, true, &said, &err), "%s", err.msg);
        bool there = false;
        for (int i = 0; i < c->n; i++)
            there = there || (said.n && memmem(said.data, said.n, c->stop[i], strlen(c->stop[i])));
        EXPECT(!there, "%s: noticed too late", c->name);
    }
    buf_free(&text);
    buf_free(&said);
    stops_close(s);
    vec_free(ids.at);
}

int main(void) {
    Tok *tok;
    Err err = { { 0 } };
    CHECK(tok_open(&tok, "recipes/quickstart/model", &err) != TOK_BAD && tok, "%s", err.msg);
    TokScratch *scratch = tok_scratch_open(tok);
    for (size_t i = 0; i < COUNT(cases); i++) one(&cases[i], tok, scratch);
    stops_close(NULL);
    tok_scratch_close(scratch);
    tok_close(tok);
    return test_end();
}
