/* talk_in.h - what the checks of verify_talk.c share. */
#ifndef CMD_VERIFY_TALK_IN_H
#define CMD_VERIFY_TALK_IN_H

#include "base/json.h"
#include "base/span.h"

typedef struct {
    const char *file, *path;
    int64_t passed, failed, open;
} TalkCount;

void talk_ok(TalkCount *n);
void talk_failed(TalkCount *n, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
void talk_open(TalkCount *n, const char *name, Span ours);         /* counted in neither number */

bool json_same(const Json *a, const Json *b);       /* by value: 3 is 3.0, objects in any order, NaN is "nan" */

typedef bool TalkCheck(const Json *file, TalkCount *n, Err *err);
TalkCheck verify_calls, verify_reasoning, verify_turns;

#endif
