/* groups.c - all verbs: found by name, grouped for people. */
#include "cmd/groups.h"
#include "base/near_name.h"
#include "base/term.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VERB(name) extern const Verb verb_##name;
#include "verb_list.h"
#undef VERB

static const Verb *const verbs[] = {
#define VERB(name) &verb_##name,
#include "verb_list.h"
#undef VERB
};

/* clang-format off */
static const struct {
    const char *title, *names;
} groups[] = {
    { "Models",                 "pull inspect chat serve generate score tokenize template" },
    { "Files of models",        "convert export random" },
    { "Data and answers",       "data eval grade" },
    { "Training",               "train sft plan import-verl" },
    { "Runs",                   "page show compare" },
    { "This program, and more", "" },
};
static const struct {
    const char *verb, *line;
} examples[] = {
    { "chat",        "chat demo/model --system 'Answer in one word.'" },
    { "compare",     "compare runs/a runs/b" },
    { "convert",     "convert demo/model demo/f32 --dtype f32" },
    { "data",        "data gsm8k --in gsm8k/train.jsonl --out train.parquet" },
    { "doctor",      "doctor --json > machine.json" },
    { "eval",        "eval demo/model test.jsonl --scorer gsm8k --n 4" },
    { "export",      "export runs/first demo/better" },
    { "generate",    "generate demo/model --prompt '7+8' --n 4" },
    { "grade",       "grade --in answers.jsonl --scorer math" },
    { "import-verl", "import-verl run.sh --out config.yaml" },
    { "inspect",     "inspect demo/model" },
    { "page",        "page runs/first" },
    { "plan",        "plan demo/model --cluster this" },
    { "pull",        "pull HuggingFaceTB/SmolLM2-135M-Instruct" },
    { "score",       "score demo/model --in answers.jsonl --out scores.jsonl" },
    { "serve",       "serve demo/model --port 8000" },
    { "sft",         "sft sft.yaml train.lr=2e-5" },
    { "show",        "show runs/first" },
    { "train",       "train config.yaml train.lr=1e-5" },
};
/* clang-format on */

const Verb *verb_at(size_t i) { return i < COUNT(verbs) ? verbs[i] : NULL; }

const Verb *verb_find(const char *name) {
    for (size_t i = 0; i < COUNT(verbs); i++)
        if (!strcmp(verbs[i]->name, name)) return verbs[i];
    return NULL;
}

static const char *name_at(const void *user, size_t i) { return (void)user, verbs[i]->name; }
const char *verb_nearest(const char *name) { return near_name(name, COUNT(verbs), name_at, NULL); }

const char *verb_example(const Verb *v) {
    for (size_t i = 0; i < COUNT(examples); i++)
        if (!strcmp(examples[i].verb, v->name)) return examples[i].line;
    return NULL;
}

static bool listed(const char *names, const char *name) {
    size_t n = strlen(name);
    for (const char *p = names; *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        if (len == n && !strncmp(p, name, n)) return true;
        p += len;
    }
    return false;
}

const char *verb_group(size_t i) { return i < COUNT(groups) ? groups[i].title : NULL; }

const Verb *verb_in_group(size_t group, size_t i) {
    if (*groups[group].names) {
        const char *p = groups[group].names;
        for (;; p += strspn(p, " ")) {
            char name[32];
            size_t len = strcspn(p, " ");
            if (!len) return NULL;
            snprintf(name, sizeof name, "%.*s", (int)len, p);
            const Verb *v = verb_find(name);
            if (v && !i--) return v;
            p += len;
        }
    }
    for (size_t k = 0; k < COUNT(verbs); k++) {
        bool other = false;
        for (size_t g = 0; g < COUNT(groups); g++) other |= listed(groups[g].names, verbs[k]->name);
        if (!other && !i--) return verbs[k];
    }
    return NULL;
}

void verbs_help(void) {
    const char *head = term_colour(STDOUT_FILENO, TERM_HEAD), *end = term_colour(STDOUT_FILENO, TERM_END);
    puts("hone - makes language models better by reinforcement learning\n\nusage: hone VERB [options]     hone VERB "
         "--help");
    const Verb *v;
    for (size_t g = 0; verb_group(g); g++) {
        if (!verb_in_group(g, 0)) continue;
        printf("\n%s%s%s\n", head, verb_group(g), end);
        for (size_t i = 0; (v = verb_in_group(g, i)); i++) printf("  %-11s %s\n", v->name, v->summary);
    }
}
