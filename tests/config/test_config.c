/* test_config.c - a good configuration under hone's and verl's names, merges and anchors, the dump that loads again,
 * and a table of wrong ones, each of which gets its own clear line before anything loads. */
#include "base/file.h"
#include "config/use.h"
#include "test.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL FIXTURE("models/qwen3")
#define DATA  FIXTURE("config/questions.jsonl")
#define GOOD                                                                                                           \
    "model: {path: " MODEL "}\n"                                                                                       \
    "data: {train_files: " DATA ", max_prompt_length: 24, max_response_length: 24, train_batch_size: 8}\n"
#define PAIRS "model: {path: " MODEL "}\ndata: {train_files: " DATA "}\nsft: {max_length: 32, batch_size: 4}\n"

static bool load(Config *c, ConfVerb verb, const char *text, const char *overrides, Err *err) {
    Mem mem = { 0 };
    const char *list[16];
    int n = 0;
    char *copy = mem_str(&mem, overrides, strlen(overrides)), *save = NULL;
    for (char *p = strtok_r(copy, ";", &save); p; p = strtok_r(NULL, ";", &save)) list[n++] = p;
    bool ok = config_load_text(c, verb, "run.yaml", text, strlen(text), list, n, err);
    mem_free(&mem);
    return ok;
}

static bool all_checks(const Config *c, Err *err) {
    ModelDesc m;
    Mem mem = { 0 };
    bool ok =
        config_check(c, err) && model_desc_load(&m, c->model.path, &mem, err) && config_check_model(c, &m, 1, err);
    mem_free(&mem);
    return ok;
}

static void good(void) {
    Config c;
    Err err = { { 0 } };
    bool ok =
        load(&c, CONF_TRAIN, GOOD "train:\n  lr: 2e-6\n  betas: [0.9, 0.95]\n  clip_ratio: 0.3\nrollout.n: 4\nalgo:\n",
             "train.lr=3e-6;train.clip_high=0.4", &err);
    EXPECT(ok, "%s", err.msg);
    if (!ok) return;
    EXPECT(all_checks(&c, &err), "%s", err.msg);
    EXPECT(c.train.lr == 3e-6 && c.train.betas[1] == 0.95 && c.rollout.n == 4 && c.data.train_files.n == 1, "values");
    EXPECT(c.train.clip_low == 0.3 && c.train.clip_high == 0.4 && c.train.mini_batch_size == 8, "filled in");
    EXPECT(c.rollout.max_tokens == 24, "filled in");
    EXPECT(c.data.seed == 1 && c.rollout.seed == 1 && !strcmp(c.trainer.run_dir, "runs/hone/run"), "filled in");
    EXPECT_STR(config_where(&c, "train.lr"), "command line");
    EXPECT_STR(config_where(&c, "train.betas"), "run.yaml:5");
    EXPECT_STR(config_where(&c, "train.eps"), "the default");
    EXPECT(config_updates_per_step(&c) == 1 && !config_needs_ref(&c), "derived");
    LossConf l = config_loss(&c);
    EXPECT(l.clip_low == 0.3 && l.kl_coef == 0 && l.norm_len == 24, "loss");
    LrConf lr = config_lr(&c, 100);
    EXPECT(lr.warmup == 0 && lr.decay == 10 && lr.lr == 3e-6, "lr");

    /* the dump loads again and gives the same dump */
    Buf a = { 0 }, b = { 0 };
    config_dump(&a, &c, DUMP_ALL);
    Config d;
    ok = config_load_text(&d, CONF_TRAIN, "config.yaml", a.data, a.n, NULL, 0, &err);
    EXPECT(ok, "%s", err.msg);
    if (ok) {
        memset(d.origin, 0, sizeof d.origin), memset(c.origin, 0, sizeof c.origin);
        buf_clear(&a);
        config_dump(&a, &c, DUMP_ALL);
        config_dump(&b, &d, DUMP_ALL);
        EXPECT_STR(a.data, b.data);
        config_free(&d);
    }
    buf_clear(&a);
    config_list_options(&a, CONF_TRAIN);
    EXPECT(strstr(a.data, "train.lr = 1e-6") && strstr(a.data, "verl: actor_rollout_ref.actor.optim.lr"), "list");
    EXPECT(!strstr(a.data, "sft."), "sft's options are not listed");
    buf_free(&a);
    buf_free(&b);
    config_free(&c);
}

/* What a run saves as config.yaml starts the same run: it loads, and it is not refused. */
static void saved(ConfVerb verb, const char *text, const char *set) {
    Config c, d;
    Err err = { { 0 } };
    Buf a = { 0 };
    bool ok = load(&c, verb, text, set, &err) && all_checks(&c, &err);
    EXPECT(ok, "%s: %s", set, err.msg);
    if (!ok) return;
    config_dump(&a, &c, DUMP_ALL);
    ok = config_load_text(&d, verb, "config.yaml", a.data, a.n, NULL, 0, &err);
    EXPECT(ok && all_checks(&d, &err), "%s: what was saved is refused: %s", set, err.msg);
    config_free(&c);
    if (ok) config_free(&d);
    buf_free(&a);
}

/* A value of the command line is the run's, to the byte, and config.yaml says the same. */
static void nasty(void) {
    static const char *const value[] = {
        "a\nb",
        "a\n\nb",
        "\nb",
        "a\n",
        " a\n  b ",
        "a\r\nb",
        "a\xC2\x85z",
        "\xC2\x85",
        "a\xE2\x80\xA8z",
        "a\xE2\x80\xA9z",
        "\xEF\xBB\xBFx",
        "a\x7Fz",
        "a\x01\x1Bz",
        "a\tb",
        "a\xC2\x9Fz",
        "a\xC2\xA0z",
        "a\xEF\xBF\xBEz",
        "\xF0\x9F\x8D\xBE",
        "a: b",
        "a: b\nc: d",
        "# x",
        "a\n# x",
        "'a",
        "\"a\nb",
        "%a\nb",
        "a\\nb",
        "{a\nb",
        "|\n  a",
    };
    for (size_t i = 0; i < COUNT(value); i++) {
        Config c, d;
        Err err = { { 0 } };
        Buf set = { 0 }, a = { 0 };
        buf_printf(&set, "trainer.run_dir=%s", value[i]);
        const char *const one[] = { set.data };
        bool ok = config_load_text(&c, CONF_TRAIN, i % 2 ? "run.yaml" : value[i], GOOD, strlen(GOOD), one, 1, &err);
        EXPECT(ok && (!strcmp(c.trainer.run_dir, value[i]) || value[i][0] == '|'), "%s: %s", set.data,
               ok ? c.trainer.run_dir : err.msg);
        if (ok) config_dump(&a, &c, DUMP_ALL);
        bool back = ok && config_load_text(&d, CONF_TRAIN, "config.yaml", a.data, a.n, NULL, 0, &err);
        EXPECT(back && !strcmp(c.trainer.run_dir, d.trainer.run_dir), "%s: what was saved is read as %s", set.data,
               back ? d.trainer.run_dir : err.msg);
        if (back) config_free(&d);
        if (ok) config_free(&c);
        buf_free(&set);
        buf_free(&a);
    }
}

static void idle(const char *set, const char *says) {
    Config c;
    Err err = { { 0 } };
    if (!load(&c, CONF_TRAIN, GOOD, set, &err)) {
        EXPECT(false, "%s", err.msg);
        return;
    }
    config_idle(&c);
    EXPECT(says ? c.notes.n == 1 && strstr(c.notes.at[0], says) : !c.notes.n, "%s: %d notes, the first: %s", set,
           (int)c.notes.n, c.notes.n ? c.notes.at[0] : "");
    config_free(&c);
}

static void verl_names(void) {
    static const char text[] =
        "actor_rollout_ref:\n"
        "  model: {path: " MODEL ", use_remove_padding: true}\n"
        "  actor:\n"
        "    optim: {lr: 1e-6, lr_warmup_steps: -1}\n"
        "    ppo_mini_batch_size: 4\n"
        "    kl_loss_type: low_var_kl\n"
        "    use_kl_loss: True\n"
        "    use_dynamic_bsz: True\n"
        "  rollout: {name: vllm, n: 5, top_k: -1, val_kwargs: {n: 2, temperature: 0.7}}\n"
        "algorithm: {adv_estimator: rloo, rollout_correction: {rollout_is: null}}\n"
        "data: {train_files: [" DATA "], train_batch_size: 8, max_prompt_length: 16, max_response_length: 16}\n"
        "trainer: {total_epochs: 3, test_freq: -1, save_freq: -1, nnodes: 1, n_gpus_per_node: 1}\n";
    Config c;
    Err err = { { 0 } };
    bool ok = load(&c, CONF_TRAIN, text, "", &err) && all_checks(&c, &err);
    EXPECT(ok, "%s", err.msg);
    if (!ok) return;
    EXPECT(c.algo.advantage == ADV_RLOO && c.train.kl_loss_type == KL_K3 && c.rollout.n == 5 && c.rollout.top_k == 0,
           "values");
    EXPECT(c.algo.tis == TIS_OFF && c.trainer.epochs == 3 && c.trainer.val_every == 0 && c.train.mini_batch_size == 4,
           "values");
    EXPECT(config_needs_ref(&c) && config_updates_per_step(&c) == 2, "derived");
    EXPECT(!config_cuts(&c) && !config_keeps_sets(&c), "derived: nothing is cut");
    bool renamed = false, gone = false;
    for (size_t i = 0; i < c.notes.n; i++) {
        renamed |=
            !strcmp(c.notes.at[i], "run.yaml:4: actor_rollout_ref.actor.optim.lr (verl's name) is train.lr here");
        gone |= !!strstr(c.notes.at[i],
                         "actor_rollout_ref.actor.use_dynamic_bsz has no effect: sequences are always packed");
    }
    EXPECT(renamed && gone, "notes");
    config_free(&c);
}

static void merges(void) {
    static const char text[] = "train: &base\n  lr: 1e-5\n  epochs: 2\n"
                               "rollout: {val: &v {n: 4, temperature: 1.0}}\n"
                               "data:\n  max_prompt_length: &len 100\n  max_response_length: *len\n";
    Config c;
    Err err = { { 0 } };
    bool ok = load(&c, CONF_TRAIN, text, "", &err);
    EXPECT(ok && c.data.max_response_length == 100 && c.rollout.val.n == 4, "%s", err.msg);
    if (ok) config_free(&c);
    static const char
        merged[] = /* the first mapping holds no options of its own: it stands under a section and is merged */
        "algo:\n  overlong: &o {enable: true, buffer: 5, factor: 0.5}\n"
        "rollout:\n  val: {n: 2}\n  grid: {<<: {tp: 1, dp: 1}, tp: 2}\n";
    ok = load(&c, CONF_TRAIN, merged, "", &err);
    EXPECT(ok && c.rollout.grid.tp == 2 && c.rollout.grid.dp == 1, "own keys win: %s", err.msg);
    if (ok) config_free(&c);
    ok = load(&c, CONF_TRAIN, "rollout:\n  val: {<<: [{n: 3}, {n: 4, top_k: 7}], min_p: 0.1}\n", "", &err);
    EXPECT(ok && c.rollout.val.n == 3 && c.rollout.val.top_k == 7 && c.rollout.val.min_p == 0.1,
           "the first of a list wins: %s", err.msg);
    if (ok) config_free(&c);
    ok = load(&c, CONF_SFT, PAIRS, "train.lr=1e-3", &err) && all_checks(&c, &err);
    EXPECT(ok && c.sft.batch_size == 4 && c.train.lr == 1e-3, "sft: %s", err.msg);
    if (ok) config_free(&c);
    ok = load(&c, CONF_SFT, "data: {train_batch_size: 7, prompt_key: q}", "", &err);
    EXPECT(ok && c.sft.batch_size == 7 && !strcmp(c.sft.prompt_key, "q"), "sft takes verl's names: %s", err.msg);
    if (ok) config_free(&c);
    EXPECT(load(&c, CONF_TRAIN, "", "", &err), "an empty file is all defaults: %s", err.msg);
    config_free(&c);
}

/* Recipes must parse.  The planner's are for many ranks, and their rollouts are cut, which
 * this build refuses; the others lack only their model. */
static void recipes(void) {
    glob_t g;
    int n = glob("recipes/*.yaml", 0, NULL, &g) ? 0 : (int)g.gl_pathc;
    EXPECT(n > 0, "there are recipes");
    for (int i = 0; i < n; i++) {
        Config c;
        Err err = { { 0 } };
        bool ok = config_load(&c, CONF_TRAIN, g.gl_pathv[i], NULL, 0, NULL, &err);
        EXPECT(ok, "%s", err.msg);
        if (!ok) continue;
        EXPECT(!config_check(&c, &err)
                   && (strstr(err.msg, "each rank samples with the whole model") || strstr(err.msg, "is not a folder")),
               "%s: %s", g.gl_pathv[i], err.msg);
        config_free(&c);
    }
    if (n) globfree(&g);
}

/* clang-format off */
static const struct { const char *text, *set, *says; } wrong[] = {
/* not YAML, not a mapping, not an option */
{ "train: [1, 2",                  "", "run.yaml:2: did not find expected" },
{ "- a\n- b",                      "", "run.yaml:1: a configuration is a mapping of options" },
{ "train:\n\tlr: 1",               "", "run.yaml:2: found character that cannot start any token" },
{ "a: 1\nb: 2",                    "", "run.yaml:1: there is no option a" },
{ "train: {lr: 1e-6}\n---\ntrain: {lr: 2e-6}", "", "run.yaml:2: a second document begins" },
{ "train: {lr: 1e-6, lr: 2e-6}",   "", "run.yaml:1: lr stands twice in one mapping" },
{ "train: {lr: 1e-6}\ntrain.lr: 2e-6", "", "run.yaml:2: train.lr is set twice, before that at run.yaml:1" },
{ "train: {lr: 1e-6}\nactor_rollout_ref: {actor: {optim: {lr: 1e-6}}}", "", "run.yaml:2: train.lr is set twice" },
{ "train: 5",                      "", "run.yaml:1: train is a section" },
{ "train: {lr: {a: 1}}",           "", "run.yaml:1: a value or a list of values is wanted here" },
{ "data: {train_files: [[a]]}",    "", "run.yaml:1: a list may hold only plain values" },
{ "train: {<<: 5}",                "", "run.yaml:1: << wants a mapping" },
{ "? [a]\n: 1",                    "", "run.yaml:1: a key must be a plain name" },
{ "train: &a {<<: *a}",            "", "run.yaml:1: the alias *a stands inside what it names" },
{ "train: {lr: !!float 1e-6}",     "", "run.yaml:1: the tag tag:yaml.org,2002:float: tags are not supported" },
{ "train:\n  learning_rat: 1",     "", "run.yaml:2: there is no option train.learning_rat;" },
{ "train: {lrr: 1}",               "", "run.yaml:1: there is no option train.lrr; the nearest is train.lr " },
{ "train: {clip_hihg: 1}",         "", "the nearest is train.clip_high" },
{ "lr: 1",                         "", "there is no option lr; the nearest is train.lr" },
{ "rollout: {val: {m: 1}}",        "", "there is no option rollout.val.m; the nearest is rollout.val.n" },
{ "actor_rollout_ref: {actor: {optim: {lrr: 1}}}", "", "the nearest is train.lr" },
{ "trainer: {warp_drive_enabled: 1}", "",
  "there is no option trainer.warp_drive_enabled; `hone train --list-options`" },
{ "sft: {batch_size: 4}",          "", "sft.batch_size is an option of `hone sft`, not of `hone train`" },
{ "",                              "train.lr", "command line: 'train.lr' is not key=value" },
{ "",                              "~train.lr",
  "command line: ~train.lr: options are set with key=value, without '~'" },
{ "",                              "+train.lrr=1", "command line: there is no option train.lrr" },
{ "",                              "train.use_kl=true",
  "there is no option train.use_kl; the nearest is train.use_kl_loss" },
{ "",                              "train.lrr=1",
  "command line: there is no option train.lrr; the nearest is train.lr" },
{ "",                              "train=1", "command line: train is a section" },
/* types and ranges */
{ "train: {lr: fast}",             "", "run.yaml:1: train.lr: 'fast' is not allowed; it wants a number from 0 to 10" },
{ "train: {lr: \"1e-6\"}",         "", "train.lr: the string '1e-6' is not allowed" },
{ "train: {lr: -1}",               "", "train.lr: '-1' is not allowed; it wants a number from 0 to 10" },
{ "train: {lr: .inf}",             "", "train.lr: '.inf' is not allowed" },
{ "train: {lr: }",                 "", "train.lr: '' is not allowed" },
{ "train: {lr: [1, 2]}",           "", "train.lr: '[...]' is not allowed" },
{ "train: {lr: \"${x.lr}\"}",      "", "values are not interpolated" },
{ "rollout: {n: 2.5}",             "", "rollout.n: '2.5' is not allowed; it wants a whole number from 1 to 65536" },
{ "rollout: {n: 0}",               "", "rollout.n: '0' is not allowed" },
{ "data: {shuffle: maybe}",        "", "data.shuffle: 'maybe' is not allowed; it wants true or false" },
{ "algo: {advantage: grop}",       "", "algo.advantage: 'grop' is not allowed; it wants one of grpo|dr_grpo|rloo|" },
{ "train: {loss_agg: mean}",       "", "it wants one of token-mean|seq-mean-token-sum|" },
{ "train: {eps: 1e-50}",           "", "train.eps: '1e-50' is not allowed; it wants a number from 1e-38 to 1" },
{ "train: {betas: [0.9]}",         "", "train.betas: wants a list of two numbers, such as [0.9, 0.999]" },
{ "train: {betas: [0.9, 1.5]}",    "", "train.betas: '1.5' is not allowed; it wants two numbers from 0 to" },
{ "train: {offload_fraction: 1.2}", "", "train.offload_fraction: '1.2' is not allowed; it wants a number from 0 to 1" },
{ "train: {recompute: some}",      "", "it wants one of none|selective|full" },
{ "trainer: {on_nan: continue}",   "", "trainer.on_nan: 'continue' is not allowed; it wants one of stop|skip" },
{ "rollout: {temperature: 0}",     "",
  "rollout.temperature: '0' is not allowed; it wants a number from 0.0001 to 10000" },
{ "rollout: {top_p: 1.5}",         "", "rollout.top_p: '1.5' is not allowed" },
{ "data: {train_files: [a, '']}",  "", "data.train_files: the string '' is not allowed" },
/* what does not fit together */
{ GOOD, "train.mini_batch_size=3", "command line: train.mini_batch_size: data.train_batch_size = 8 does not divide" },
{ GOOD, "train.mini_batch_size=16", "but a step has only data.train_batch_size = 8" },
{ GOOD, "train.loss=kl_cov;data.max_response_length=1000000000;data.max_prompt_length=1;train.micro_tokens=1000000000",
  "kl_cov ranks the tokens of an update" },
{ GOOD, "train.micro_tokens=40", "train.micro_tokens: a micro-batch of 40 tokens cannot hold one sequence of 48" },
{ GOOD, "rollout.max_tokens=25", "rollout.max_tokens: 25 is more than data.max_response_length = 24" },
{ GOOD, "rollout.top_k=1", "rollout.top_k: 1 is greedy" },
{ GOOD, "rollout.val.n=4", "rollout.val.n: 4 greedy answers to a question are all the same" },
{ GOOD, "rollout.n=1", "rollout.n: grpo compares the answers" },
{ GOOD, "rollout.n=1;algo.advantage=reinforce++;algo.filter_groups.enable=true",
  "algo.filter_groups.enable: a group of rollout.n = 1" },
{ GOOD, "algo.advantage=gae", "gae needs a critic" },
{ GOOD, "algo.advantage=rloo;algo.norm_by_std=false", "algo.norm_by_std: has no effect with algo.advantage = rloo" },
{ GOOD, "algo.overlong.enable=true", "algo.overlong.buffer: is 0" },
{ GOOD, "algo.overlong.enable=true;algo.overlong.buffer=25",
  "algo.overlong.buffer: 25 tokens are more than the longest answer" },
{ GOOD, "algo.overlong.buffer=5", "but algo.overlong.enable is false" },
{ GOOD, "algo.kl_control=adaptive", "algo.kl_control: adaptive has no effect without" },
{ GOOD, "algo.kl_in_reward=true;algo.kl_coef=0", "algo.kl_coef: is 0, so algo.kl_in_reward" },
{ GOOD, "algo.kl_estimator=k3+", "algo.kl_estimator: k3+ differs from k3 only in its gradient" },
{ GOOD, "train.use_kl_loss=true;train.kl_loss_coef=0", "train.kl_loss_coef: is 0" },
{ GOOD, "train.loss=sapo;train.loss_agg=seq-mean-token-sum", "train.loss_agg: sapo averages in its own way" },
    { GOOD, "train.loss=dro", "train.dro_beta: is not set" },
    { GOOD, "train.loss=clip_cov;train.clip_cov_lb=5", "train.clip_cov_lb: 5 is not below" },
    { GOOD, "algo.advantage=gdpo", "a scorer gives one number" },
    { GOOD, "algo.advantage=tir_optimal_token_baseline", "sum of squared probabilities" },
{ GOOD, "train.loss_norm_length=5", "train.loss_norm_length: has no effect unless" },
{ GOOD, "train.clip_high=2.5", "train.clip_c: 3 lies inside the clip range" },
{ GOOD, "train.lr=0", "train.lr: is 0: nothing would be learned" },
{ GOOD, "trainer.steps=5;train.warmup_steps=6",
  "train.warmup_steps: 6 steps of warm-up in a run of trainer.steps = 5" },
{ GOOD, "train.warmup_steps=5;train.warmup_ratio=0.1", "train.warmup_ratio: set this or train.warmup_steps" },
{ GOOD, "train.decay_steps=5", "train.decay_steps: is for train.schedule = wsd, not constant" },
{ GOOD, "trainer.steps=10;train.schedule=wsd;train.decay_steps=8;train.warmup_steps=3",
  "do not fit into trainer.steps = 10" },
{ GOOD, "rollout.kv_tokens=100;rollout.kv_bytes=100", "rollout.kv_bytes: set this or rollout.kv_tokens" },
{ GOOD, "rollout.kv_bytes=50", "rollout.kv_bytes: 50 bytes cannot hold one sequence of 48 tokens" },
{ GOOD, "rollout.n=65536;data.train_batch_size=10000", "rollout.n: 65536 answers to each of 10000 questions" },
{ GOOD, "trainer.threads=4096", "trainer.threads: '4096' is not allowed; it wants a whole number from 0 to 256" },
{ GOOD, "reward.workers=4096", "reward.workers: '4096' is not allowed; it wants a whole number from 0 to 1024" },
{ GOOD, "trainer.leaves=64", "trainer.leaves: '64' is not allowed" },
{ GOOD, "rollout.page=8", "rollout.page: '8' is not allowed; it wants a whole number from 16 to 4096" },
{ GOOD, "rollout.kv_tokens=50", "rollout.kv_tokens: a cache of 50 tokens cannot hold" },
{ GOOD, "rollout.page=48", "rollout.page: 48 is not a power of two" },
{ GOOD, "rollout.token_budget=100",
  "rollout.token_budget: 100 tokens per forward are fewer than rollout.max_batch = 256" },
{ GOOD, "trainer.val_every=5", "trainer.val_every: there is nothing to validate on" },
{ GOOD, "reward.scorer=openai/gsm9k", "reward.scorer: " },
{ GOOD, "reward.scorer=openai/gsm8k;reward.command=cat", "reward.command: set one of" },
{ GOOD, "reward.library=/no/such.so", "reward.library: /no/such.so does not exist" },
{ GOOD, "grid.tp=8", "grid: tp x pp x cp = 8 does not divide the 1 rank there is" },
{ GOOD, "grid.gpus_per_node=8", "grid.gpus_per_node: 1 machines x 8 processes are wanted, and there is 1" },
{ GOOD, "grid.vpp=2", "grid.vpp is 2 without stages" },
{ GOOD, "grid.split=3", "split '3' holds 3 layers" },
{ GOOD, "grid.split=2;grid.first_layers=1", "grid.split: set this or" },
{ GOOD, "rollout.grid.tp=2", "rollout.grid.tp: a replica of tp 2 x dp 1 does not divide the 1 rank there is" },
{ GOOD, "trainer.leaves=6", "trainer.leaves: 6 is not a power of two" },
{ GOOD, "trainer.run_dir=" DATA, "trainer.run_dir: " DATA " is a file" },
{ GOOD, "data.train_files=/no/such/file.parquet", "data.train_files: /no/such/file.parquet does not exist" },
{ GOOD, "data.train_files='/no/such/*.parquet'", "data.train_files: no file matches /no/such/*.parquet" },
{ GOOD, "data.train_files=tests/data", "data.train_files: tests/data is a folder" },
{ GOOD, "data.train_files=CMakeLists.txt", "data.train_files: CMakeLists.txt is neither .parquet nor .jsonl" },
{ GOOD, "data.val_files=/no/val.jsonl", "data.val_files: /no/val.jsonl does not exist" },
{ GOOD, "data.train_max_samples=7", "data.train_max_samples: 7 questions do not fill one step" },
{ "data: {train_files: " DATA "}", "", "model.path: is not set" },
{ GOOD, "model.path=/no/model", "model.path: /no/model is not a folder" },
{ GOOD, "model.path=tests/data", "model.path: tests/data holds no config.json" },
{ GOOD, "model.chat_template=/no/file", "model.chat_template: /no/file does not exist" },
{ "model: {path: " MODEL "}", "", "data.train_files: is empty" },
{ GOOD, "data.max_response_length=9000;train.micro_tokens=10000", 
  "data.max_response_length: 9000 + data.max_prompt_length 24 = 9024 tokens are more than the model's context" },
};
static const struct { const char *text, *set, *says; } wrong_sft[] = {
{ PAIRS, "train.micro_tokens=31", "train.micro_tokens: a micro-batch of 31 tokens cannot hold one pair" },
{ PAIRS, "rollout.n=4", "rollout.n is an option of `hone train`, not of `hone sft`" },
{ PAIRS, "sft.messages_key=m;sft.prompt_key=p", "sft.messages_key: whole conversations" },
{ PAIRS, "data.train_max_samples=3", "data.train_max_samples: 3 pairs do not fill one batch" },
{ PAIRS, "grid.dp=2",
  "grid: tp x pp x cp x dp takes 2 ranks, and there is 1; start that many (mpirun -n 2), or leave out dp: one rank" },
{ PAIRS, "sft.max_length=12000", "sft.max_length: 12000 tokens are more than the model's context" },
};
/* clang-format on */

static void refuse(ConfVerb verb, const char *text, const char *set, const char *says) {
    Config c;
    Err err = { { 0 } };
    bool loaded = load(&c, verb, text, set, &err), ok = loaded && all_checks(&c, &err);
    EXPECT(!ok, "accepted: %s %s", text, set);
    EXPECT(ok || strstr(err.msg, says), "%s %s\n  says  %s\n  wants %s", text, set, err.msg, says);
    EXPECT(!strchr(err.msg, '\n'), "more than one line: %s", err.msg);
    if (loaded) config_free(&c);
}

/* Sums are cut into as many pieces as the device likes, and no fewer than either grid's tp; what is said counts. */
static void leaves(void) {
    static const struct {
        const char *set;
        int cpu, gpu;
    } row[] = {
        { "", 8, 1 },
        { "grid.tp=2", 8, 2 },
        { "grid.tp=16", 16, 16 },
        { "grid.etp=4;grid.ep=2", 8, 4 },
        { "rollout.grid.tp=32;grid.tp=4", 32, 32 },
        { "trainer.leaves=2", 2, 2 },
        { "trainer.leaves=32;grid.tp=2", 32, 32 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        Config c;
        Err err = { { 0 } };
        bool ok = load(&c, CONF_TRAIN, GOOD, row[i].set, &err);
        EXPECT(ok, "%s: %s", row[i].set, err.msg);
        if (!ok) continue;
        EXPECT(config_leaves(&c, false) == row[i].cpu && config_leaves(&c, true) == row[i].gpu, "%s: %d and %d leaves",
               row[i].set, (int)config_leaves(&c, false), (int)config_leaves(&c, true));
        config_free(&c);
    }
}

/* Cut sampling with several updates a step, or with a KL: the sets travel, in room that is known. */
static void kept_sets(void) {
    static const struct {
        const char *set;
        bool cuts, keeps;
        size_t room, most;
    } row[] = {
        { "", false, false, 0, 0 },
        { "rollout.top_p=0.9", true, false, 0, 0 },
        { "train.epochs=2", false, false, 0, 0 },
        { "rollout.min_p=0.1;train.epochs=2", true, true, 24 * 19, 19 }, /* 144 ids: a byte and 18 of bits */
        { "rollout.top_p=0.9;train.mini_batch_size=4;data.train_batch_size=8", true, true, 24 * 19, 19 },
        { "rollout.top_p=0.9;train.use_kl_loss=true;rollout.kept_bytes=4", true, true, 24 * 4, 19 },
        { "rollout.top_k=3;algo.kl_in_reward=true", true, true, 24 * 7, 7 }, /* how many, and 3 ids of up to 2 bytes */
        { "rollout.top_k=3;train.epochs=2;rollout.kept_bytes=1;rollout.max_tokens=2", true, true, 7, 7 },
        { "rollout.top_k=3;train.epochs=2;rollout.kept_bytes=1000", true, true, 24 * 7, 7 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        Config c;
        Err err = { { 0 } };
        size_t most;
        bool ok = load(&c, CONF_TRAIN, GOOD, row[i].set, &err) && all_checks(&c, &err);
        EXPECT(ok, "%s: %s", row[i].set, err.msg);
        if (!ok) continue;
        EXPECT(config_cuts(&c) == row[i].cuts && config_keeps_sets(&c) == row[i].keeps, "%s: cuts %d, keeps sets %d",
               row[i].set, config_cuts(&c), config_keeps_sets(&c));
        size_t room = config_kept_room(&c, 144, &most);
        EXPECT(!row[i].keeps || (room == row[i].room && most == row[i].most), "%s: room of %zu, sets of up to %zu",
               row[i].set, room, most);
        config_free(&c);
    }
}

/* The time that a chat template prints: in its place among the arguments, null being none. */
static void a_time(void) {
    static const struct {
        const char *set, *was, *args;
    } row[] = {
        { "", NULL, "{\"now\":\"2026-11-15T10:20:30\"}" },
        { "data.template_args=[a=1]", NULL, "{\"a\":1,\"now\":\"2026-11-15T10:20:30\"}" },
        { "data.template_args=[now=null, a=1]", NULL, "{\"now\":\"2026-11-15T10:20:30\",\"a\":1}" },
        { "data.template_args=[nowhere=1, now=2020-02-03, a=1]", "2020-02-03",
          "{\"nowhere\":1,\"now\":\"2026-11-15T10:20:30\",\"a\":1}" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        Config c;
        Err err = { { 0 } };
        bool ok = load(&c, CONF_TRAIN, GOOD, row[i].set, &err);
        EXPECT(ok, "%s: %s", row[i].set, err.msg);
        if (!ok) continue;
        const char *was = config_time(&c);
        EXPECT(was ? row[i].was && !strcmp(was, row[i].was) : !row[i].was, "%s: %s", row[i].set, was ? was : "none");
        config_set_time(&c, "2026-11-15T10:20:30");
        EXPECT(!strcmp(config_arguments(&c.data.template_args, &c.mem), row[i].args), "%s: %s", row[i].set,
               config_arguments(&c.data.template_args, &c.mem));
        config_free(&c);
    }
}

int main(void) {
    a_time();
    good();
    leaves();
    kept_sets();
    nasty();
    verl_names();
    saved(CONF_TRAIN, GOOD, "");
    saved(CONF_TRAIN, GOOD, "train.loss=gspo;algo.advantage=rloo;train.schedule=wsd;trainer.steps=50");
    saved(CONF_TRAIN, GOOD, "train.loss_agg=seq-mean-token-sum-norm;algo.kl_in_reward=true;data.val_files=" DATA);
    saved(CONF_SFT, PAIRS, "");
    saved(CONF_SFT, PAIRS, "sft.messages_key=m;sft.tools_key=t");
    idle("train.kl_loss_coef=0.5", "command line: train.kl_loss_coef has no effect unless train.use_kl_loss is true");
    idle("train.kl_loss_coef=0.001", NULL);
    idle("train.kl_loss_coef=0.5;train.use_kl_loss=true", NULL);
    idle("train.tau_pos=2", "train.loss is sapo");
    idle("algo.lam=0.9", "needs a critic");
    merges();
    recipes();
    for (size_t i = 0; i < COUNT(wrong); i++) refuse(CONF_TRAIN, wrong[i].text, wrong[i].set, wrong[i].says);
    for (size_t i = 0; i < COUNT(wrong_sft); i++)
        refuse(CONF_SFT, wrong_sft[i].text, wrong_sft[i].set, wrong_sft[i].says);
    char dir[] = "/tmp/hone-conf-XXXXXX", set[96], sub[64];
    EXPECT(mkdtemp(dir), "mkdtemp");
    snprintf(sub, sizeof sub, "%s/checkpoints", dir);
    snprintf(set, sizeof set, "trainer.run_dir=%s;trainer.resume=never", dir);
    EXPECT(!mkdir(sub, 0755), "mkdir");
    refuse(CONF_TRAIN, GOOD, set, "holds checkpoints, and trainer.resume is never");
    EXPECT(!rmdir(sub), "rmdir");
    snprintf(set, sizeof set, "trainer.run_dir=%s", dir);
    FILE *f = fopen(sub, "w");
    EXPECT(f && !fclose(f), "%s", sub);
    refuse(CONF_TRAIN, GOOD, set, "checkpoints is no folder that can be written to");
    EXPECT(!unlink(sub), "unlink");
    Config c;
    Err err;
    snprintf(sub, sizeof sub, "%s/train[1].jsonl", dir); /* a name that is a pattern too, of another name */
    snprintf(set, sizeof set, "data.train_files=[\"%s\"]", sub);
    refuse(CONF_TRAIN, GOOD, set, "no file matches");
    f = fopen(sub, "w");
    EXPECT(f && !fclose(f), "%s", sub);
    EXPECT(load(&c, CONF_TRAIN, GOOD, set, &err) && all_checks(&c, &err), "%s", err.msg);
    config_free(&c);
    EXPECT(!unlink(sub) && !rmdir(dir), "rmdir");
    EXPECT(!config_load(&c, CONF_TRAIN, "/no/such.yaml", NULL, 0, NULL, &err) && strstr(err.msg, "/no/such.yaml"), "%s",
           err.msg);
    printf("%zu wrong configurations\n", COUNT(wrong) + COUNT(wrong_sft) + 1);
    return test_end();
}
