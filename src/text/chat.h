/* chat.h - a model folder's chat template: messages in, the prompt's text out, as transformers'
 * apply_chat_template(tokenize=False). */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "jinja/jinja.h"

typedef struct Chat Chat;

/* The template in 'file', or with NULL the folder's own: chat_template.jinja, else "chat_template" in
 * tokenizer_config.json: one text, or a list of named ones, of which "tool_use" is taken when tools are given and
 * "default" otherwise.  Either way the special tokens of tokenizer_config.json (and special_tokens_map.json) become
 * the template's variables: bos_token, eos_token, unk_token, pad_token, ...
 * NULL on error, also when the folder has no template.  Everything lives in mem. */
Chat *chat_open(const char *model_dir, const char *file, Mem *mem, Err *err);
Chat *chat_open_file(const char *path, Mem *mem, Err *err);  /* a template alone, of no model: without tokens */

/* Does it (or its tool_use) print the time: is strftime_now named there?  chat_clock: the time that it prints, like
 * "2026-11-15T10:20:30", where the variables have no "now"; else the machine's, whenever it is rendered. */
bool chat_tells_time(const Chat *c);
void chat_clock(Chat *c, const char *now);

/* messages: an array of {"role", "content", ...}.  tools, extra (an object with further variables, which come before
 * the model's own): may be NULL; then tools and documents are none, as transformers passes them.  Appends to out.
 * Any number of threads may render one Chat. */
bool chat_render(const Chat *c, const Json *messages, const Json *tools, bool add_generation_prompt,
                 const Json *extra, Buf *out, Err *err);

/* The same, with the spans of the template's generation blocks in what is appended (jinja.h). */
bool chat_render_spans(const Chat *c, const Json *messages, const Json *tools, bool add_generation_prompt,
                       const Json *extra, Buf *out, JinjaSpans *spans, Err *err);
const char *chat_text(const Chat *c, const Json *tools, size_t *n);     /* the template that these tools choose */
bool chat_marks(const Chat *c, const Json *tools);      /* the template that these tools choose has such blocks */

/* Parts of messages' contents that are no text: pictures, clips, sound (their type says it,
 * or a key image, image_url, video, audio). */
int chat_media(const Json *messages);

/* The same with all variables in one object: messages, tools, add_generation_prompt and the rest.  Of a model folder,
 * what the object does not have is filled in as above; of a file alone, nothing is.  line: see jinja.h. */
bool chat_render_vars(const Chat *c, const Json *vars, Buf *out, int *line, Err *err);

#endif
