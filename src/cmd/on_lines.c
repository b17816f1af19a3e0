/* on_lines.c - opening, reading and ending of the verbs that answer lines. */
#include "cmd/on_lines.h"
#include "cmd/asked.h"
#include "cmd/options.h"

#include <string.h>

int on_lines_args(const Verb *v, int64_t leaves, const SamplingArgs *s) {
    if (leaves && !leaves_fit(leaves)) return cmd_usage(v, LEAVES_WANTED);
    return sampling_opts(v, s);
}

static bool open_grid(Ranks *ranks, const char *grid, const ModelDesc *m, int64_t leaves, Err *err) {
    GridShape axes = { 0 };
    TRY(!grid || grid_parse(&axes, grid, err));
    return ranks_grid(ranks, &axes, NULL, m, leaves ? (int)leaves : LEAVES_MOST, err);
}

bool on_lines_open(OnLines *x, const Verb *v, const void *args, const char *model, OpenOpts opts, const char *grid,
                   Replicas *replicas, PromptUse use, Err *err) {
    Ranks *ranks = &x->ranks;
    const ModelDesc *m = &x->o.desc;
    opts.ranks = ranks;
    TRY(asked_ranks(ranks, v, args, err) && ranks_agree(ranks, open_desc(&x->o, model, &opts, err), err));
    AskedModel found = { .model = m->dir, .random = opts.random.on, .seed = opts.random.seed };
    TRY(asked_model(ranks, &found, err));
    TRY(replicas ? sampling_grid(ranks, replicas, grid, m, opts.leaves, err)
                 : open_grid(ranks, grid, m, opts.leaves, err));
    TRY(ranks_agree(ranks, prompt_reader_open(&x->reader, &x->o.desc, use, err), err));
    const char *now = ranks_count(ranks) > 1 ? sampling_clock(ranks, &x->o.mem) : NULL;
    if (now && x->reader.chat) chat_clock(x->reader.chat, now); /* one prompt, whatever the others' clocks say */
    return true;
}

bool on_lines_read(OnLines *x, const char *in, LineRead *each, void *user, Err *err) {
    Buf text = { 0 };
    bool ok = ranks_text(&x->ranks, &text, in, err);
    const char *slash = strrchr(
        in, '/'); /* pictures of a file's lines lie in its folder; of lines that are piped in, below the current one */
    if (slash) x->reader.folder = mem_str(&x->o.mem, in, (size_t)(slash - in));
    for (size_t at = 0, n; ok && at < text.n; at += n + 1) {
        n = (size_t)((char *)memchr(text.data + at, '\n', text.n - at) - (text.data + at));
        text.data[at + n] = 0;
        PromptLine p;
        if (prompt_line_read(&p, &x->reader, text.data + at, n, &x->o.mem)) each(user, &p);
    }
    buf_free(&text);
    return ok;
}

bool on_lines_prompt(OnLines *x, const char *prompt, LineRead *each, void *user, Err *err) {
    Buf line = { 0 };
    PromptLine p;
    buf_puts(&line, x->reader.chat ? "{\"messages\":[{\"role\":\"user\",\"content\":" : "{\"text\":");
    json_put_str(&line, prompt, strlen(prompt));
    buf_puts(&line, x->reader.chat ? "}]}" : "}");
    bool ok = prompt_line_read(&p, &x->reader, line.data, line.n, &x->o.mem) && (p.ok || err_set(err, "%s", p.err));
    if (ok) each(user, &p);
    buf_free(&line);
    return ok;
}

bool on_lines_out(OnLines *x, const char *path, Err *err) {
    return ranks_agree(&x->ranks, !ranks_first(&x->ranks) || (x->out = jsonl_open(path, err)), err);
}

int on_lines_close(OnLines *x, const Verb *v, bool ok, Err *err) {
    int rc = ok ? 0 : cmd_fail(v, err);
    if (x->out) {
        int written = jsonl_close(x->out, err);
        if (!rc) rc = written < 0 ? cmd_fail(v, err) : written;
    }
    prompt_reader_close(&x->reader);
    open_close(&x->o);
    ranks_close(&x->ranks);
    return rc;
}
