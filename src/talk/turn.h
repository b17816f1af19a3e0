/* turn.h - what stands behind a sampled turn when a conversation goes on: the tools' answers or the user's words, in
 * the template's own writing, so that nothing that was sampled is ever encoded again.
 *
 * The text behind a turn is the difference of two renderings of a short conversation, with and without the new
 * messages, and in front of it what the template prints behind a turn's end token and sampling does not (ChatML's
 * newline).  What the template would lose, merge or refuse is an error that says so. */
#ifndef TALK_TURN_H
#define TALK_TURN_H

#include "base/span.h"
#include "text/chat.h"

/* How a template ends an assistant's turn.  tools NULL: none; extra: further variables, an object or NULL.  All of it,
 * and mem, outlive the rule. */
typedef struct {
    const Chat *chat;
    const Json *tools, *extra;
    Span end;               /* the token that ends a turn; "": the next message's first one does, as with GLM */
    Span boundary;          /* printed behind it, never sampled */
} TurnRule;
bool turn_rule(TurnRule *r, const Chat *chat, const Json *tools, const Json *extra, Mem *mem, Err *err);

/* messages: all so far, the assistant's turn as the last; sampled: that turn as it was drawn, with its end.
 * Appended to suffix: the text that follows it, up to where the next turn is sampled.  *removed: so many bytes at the
 * end of 'sampled' go first, because the suffix begins with them or with another in their place. */
bool turn_suffix(const TurnRule *r, const Json *messages, Span sampled, const Json *added, Buf *suffix,
                 size_t *removed, Mem *mem, Err *err);

/* Bytes of a token that a text cannot write by accident (<|im_end|>, </s>, [INST]) at the beginning of s; 0: none. */
size_t turn_special(Span s);

#endif
