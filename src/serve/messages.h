/* messages.h - a chat request's messages as the model's template takes them. */
#ifndef SERVE_MESSAGES_H
#define SERVE_MESSAGES_H

#include "serve/want.h"

/* sees: parts may be pictures, as data: addresses; else texts are joined.  out lies in mem, and in what 'in' points
 * to. */
bool messages_read(Json *out, const Json *in, bool sees, Mem *mem, Refusal *no);

#endif
