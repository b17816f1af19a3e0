/* job_time.c - the time that a chat template prints (strftime_now) is one for a whole run, or a run that goes on
 * tomorrow would be asked other questions than today.  The first rank reads the clock when the run begins; config.yaml
 * keeps it, as data.template_args now=..., which has no time zone. */
#include "step/job.h"
#include "base/file.h"

#include <string.h>

static bool prints(Job *j) {
    Mem mem = { 0 };
    Err later; /* the prompter says it */
    Chat *chat = chat_open(j->c.from.tokenizer, j->c.from.chat_template, &mem, &later);
    bool yes = chat && chat_tells_time(chat);
    mem_free(&mem);
    return yes;
}

/* What config.yaml of the run says; *now NULL: nothing. */
static bool kept_time(Job *j, const char **now, Err *err) {
    const char *file = mem_printf(&j->mem, "%s/config.yaml", j->c.trainer.run_dir);
    Buf text = { 0 };
    Config was;
    bool ok = !file_exists(file) || file_read(&text, file, err);
    if (ok && text.n && strstr(text.data, "now=")) {
        ok = config_load_text(&was, j->c.verb, "config.yaml", text.data, text.n, NULL, 0, err)
             || err_wrap(err,
                         "%s keeps the time that the run's prompts say: give data.template_args=[now=...], or "
                         "remove the file",
                         file);
        const char *said = ok ? config_time(&was) : NULL;
        if (said) *now = mem_str(&j->mem, said, strlen(said));
        if (ok) config_free(&was);
    }
    buf_free(&text);
    return ok;
}

static bool find(Job *j, Buf *now, const char **note, Err *err) {
    const char *said = config_time(&j->c), *old = NULL;
    if (said) return buf_puts(now, said), true;
    if (!prints(j)) return true;
    bool anew = j->c.trainer.resume == RESUME_NEVER;
    TRY(anew || kept_time(j, &old, err));
    if (old) buf_puts(now, old);
    else jinja_clock(now);
    bool before = !old && dir_exists(mem_printf(&j->mem, "%s/checkpoints", j->c.trainer.run_dir));
    *note = mem_printf(&j->mem,
                       "the chat template prints the time (strftime_now): %s in every prompt%s; "
                       "data.template_args=[now=...] sets another",
                       now->data,
                       old      ? ", as when this run began"
                       : before ? " from here on (nothing says what it was before)"
                                : " of this run");
    return true;
}

bool job_time(Job *j, const char **note, Err *err) {
    Buf now = { 0 };
    *note = NULL;
    bool first = ranks_first(&j->ranks), ok = job_agree(j, !first || find(j, &now, note, err), err);
    if (ok && !j->counted) ranks_same(&j->ranks, &now);
    if (ok && now.n) config_set_time(&j->c, now.data);
    buf_free(&now);
    return ok;
}
