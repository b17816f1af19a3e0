/* test_recipes.c - `hone train` takes every recipe but for the number of ranks; and every recipe is planned: the found
 * ones fit and have no fault, the published ones are refused with the reason where they are impossible or mistaken, and
 * each found one is quicker than what it replaces. */
#include "config/config.h"
#include "cmd/plan_args.h"
#include "base/file.h"
#include "plan/recipe.h"
#include "plan/saving.h"
#include "plan/simulate.h"
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

static Mem mem;

/* "" where it plans without a complaint; else the refusal, shortness or faults. */
static const char *plan_recipe(const char *name, const char *config, Plan *p) {
    Err err = { 0 };
    PlanArgs a = PLAN_STANDARD;
    a.recipe = mem_printf(&mem, "recipes/%s.yaml", name);
    if (!plan_args_recipe(&a, a.recipe, &mem, &err)
        || !plan_args_setting(p, &a, mem_printf(&mem, FIXTURE("configs/%s.json"), config), &mem, &err)
        || !plan_args_layout(p, &a, &err))
        return mem_printf(&mem, "%s", err.msg);
    plan_make(p);
    Buf b = { 0 };
    if (!p->fits) buf_puts(&b, p->verdict);
    plan_faults(p, &b);
    const char *said = mem_printf(&mem, "%s", b.data ? b.data : "");
    buf_free(&b);
    return said;
}

static const struct {
    const char *name, *config, *why;
} ROWS[] = {
    { "deepseek-v3-96", "DeepSeek-V3", "1024 x 8 = 8192 was meant" },
    { "deepseek-v3-96", "DeepSeek-V3", "the slowest stage takes" },
    { "deepseek-v3-96", "DeepSeek-V3", "tp repeats MLA's latent" },
    { "deepseek-v3-128", "DeepSeek-V3", "1024 x 8 = 8192 was meant" },
    { "deepseek-v3-256", "DeepSeek-V3", "1024 x 8 = 8192 was meant" },
    { "deepseek-v3-512", "DeepSeek-V3", "2 micro-batches for 16 stages" },
    { "qwen3-235b-32", "Qwen3-235B-A22B", "update needs 108.5 GB" },
    { "qwen3-235b-64", "Qwen3-235B-A22B", "update needs 130.9 GB" },
    { "qwen3-235b-128", "Qwen3-235B-A22B", "7 micro-batches for 8 stages" },
    { "qwen3-235b-256", "Qwen3-235B-A22B", "4 micro-batches for 8 stages" },
    { "qwen3-30b-8", "Qwen3-30B-A3B", "update needs 111.8 GB" },
    { "qwen3-30b-16", "Qwen3-30B-A3B", "update needs 111.8 GB" },
    { "qwen3-30b-32", "Qwen3-30B-A3B", "update needs 111.8 GB" },
    { "moonlight-24", "Moonlight-16B-A3B", "2 micro-batches for 3 stages" },
    { "qwen2.5-7b-8", "Qwen2.5-7B", NULL },
};

/* What `hone train` says to a recipe: every option is known and in range, and the one thing that stops it is the cut of
 * its rollouts; as one process, with a model and data that are there, nothing does. */
static void accepted(const char *path) {
    static const char *const ALONE[] = {
        "grid.tp=1",
        "grid.pp=1",
        "grid.vpp=1",
        "grid.ep=1",
        "grid.cp=1",
        "grid.dp=1",
        "grid.nodes=1",
        "grid.gpus_per_node=1",
        "grid.split=null",
        "grid.first_layers=null",
        "grid.last_layers=null",
        "rollout.grid.tp=1",
        "rollout.grid.dp=1",
        "rollout.grid.ep=1",
        "model.path=" FIXTURE("models/qwen3_moe"),
        "data.train_files=" FIXTURE("config/questions.jsonl"),
    };
    Err err = { 0 };
    Config c;
    bool ok = config_load(&c, CONF_TRAIN, path, NULL, 0, NULL, &err);
    EXPECT(ok, "%s: %s", path, err.msg);
    if (ok) { config_free(&c); }
    ok = config_load(&c, CONF_TRAIN, path, ALONE, COUNT(ALONE), NULL, &err);
    EXPECT(ok && config_check(&c, &err), "%s as one process: %s", path, err.msg);
    if (ok) config_free(&c);
}

static void all_accepted(void) {
    DIR *d = opendir("recipes");
    int n = 0;
    CHECK(d, "no folder recipes");
    for (struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < 5 || strcmp(e->d_name + len - 5, ".yaml")) continue;
        accepted(mem_printf(&mem, "recipes/%s", e->d_name));
        n++;
    }
    closedir(d);
    EXPECT(n == 31, "%d recipes", n); /* four of them methods, for one process */
}

/* Batch files of the found recipes: their nodes, and a signal that leaves time for a save. */
static void told_in_time(const char *name, const Plan *p) {
    Buf text = { 0 };
    Err err = { 0 };
    const char *path = mem_printf(&mem, "recipes/slurm/%s.sbatch", name);
    if (!file_exists(path)) return;
    CHECK(file_read(&text, path, &err), "%s", err.msg);
    const char *signal = strstr(text.data, "--signal=USR1@"), *nodes = strstr(text.data, "\n#SBATCH --nodes=");
    CHECK(signal && nodes, "%s: no signal, or no nodes", path);
    double s = atof(signal + strlen("--signal=USR1@")), stop = plan_saving(p).stop;
    EXPECT(stop > 0 && s >= stop && s < stop + 120, "%s: told %.0f s before its end, a stop takes %.0f", path, s, stop);
    EXPECT(atoi(nodes + strlen("\n#SBATCH --nodes=")) == cluster_nodes(&p->cluster), "%s: not the recipe's nodes",
           path);
    buf_free(&text);
}

/* What --write writes is planned again by --recipe to the same step, whatever the cluster was. */
static void planned_again(void) {
    static const char *const CASES[][4] = { /* cluster, host memory, moments, weights */
                                            { "H100x16", NULL, NULL, NULL },
                                            { "GB200x32", "900GB", "bf16", NULL },
                                            { FIXTURE("plan/cluster.yaml"), NULL, NULL, "f32" }
    };
    Plan *p = MEM_NEW(&mem, Plan), *q = MEM_NEW(&mem, Plan);
    char path[] = "/tmp/hone-recipe-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0, "no temporary file");
    close(fd);
    for (size_t i = 0; i < COUNT(CASES); i++) {
        Err err = { 0 };
        Buf b = { 0 };
        PlanArgs a = PLAN_STANDARD, again = PLAN_STANDARD;
        a.cluster = CASES[i][0], a.host_memory = CASES[i][1], a.moments = CASES[i][2], a.weights = CASES[i][3];
        a.tp = 2, a.pp = 4, a.vpp = 2, a.ep = 2, a.gen_tp = 2, a.kl = true, a.recompute = "selective";
        const char *model = FIXTURE("configs/Qwen3-30B-A3B.json");
        CHECK(plan_args_setting(p, &a, model, &mem, &err) && plan_args_layout(p, &a, &err), "%s", err.msg);
        plan_make(p);
        recipe_write(p,
                     &(RecipeText){ .path = path,
                                    .model = "models/a b: c",
                                    .data = "data/d.parquet",
                                    .cluster = a.cluster,
                                    .host_memory = a.host_memory,
                                    .moments = a.moments,
                                    .weights = a.weights },
                     &b);
        bool told = strstr(b.data, "# hone does not run there: its CUDA backend takes cards of capability 9.0 alone");
        EXPECT(told == (i == 1), "%s: %.400s", a.cluster, b.data); /* GB200 */
        CHECK(file_write(path, b.data, b.n, &err), "%s", err.msg);
        bool ok = plan_args_recipe(&again, path, &mem, &err) && plan_args_setting(q, &again, model, &mem, &err)
                  && plan_args_layout(q, &again, &err);
        EXPECT(ok, "%s: %s", a.cluster, err.msg);
        if (ok) plan_make(q);
        EXPECT(ok && q->step == p->step && q->host_worst == p->host_worst && !strcmp(again.model, "models/a b: c"),
               "%s: %.4f s, planned again %.4f s", a.cluster, p->step, q->step);
        accepted(path);
        buf_free(&b);
    }
    unlink(path);
}

/* Anchors, merges and dotted keys mean to the planner what they mean to `hone train`. */
static void spellings(void) {
    static const char *const TEXT[] = {
        "rollout: {n: 16, grid: {tp: 2, dp: 4, ep: 1}}\ngrid: {tp: 2, pp: 4, ep: 1}\ndata: {train_batch_size: "
        "512}\nplan: {spread: 1.5, park_states: true}\n",
        "grid: &both\n  tp: &two 2\n  pp: 4\n  ep: 1\nrollout:\n  n: 16\n  grid: {<<: {ep: 1, tp: 8}, tp: *two, dp: "
        "4}\n"
        "data.train_batch_size: 512\nplan.spread: 1.5\nplan: {park_states: true}\n",
        "rollout.n: 16\nrollout.grid.tp: 2\nrollout: {grid.dp: 4, grid.ep: 1}\ngrid.tp: 2\ngrid.pp: 4\ngrid.ep: "
        "1\ndata.train_batch_size: 512\n"
        "plan: {<<: [{spread: 1.5}, {spread: 3, park_states: true}]}\n",
    };
    char path[] = "/tmp/hone-recipe-XXXXXX";
    int fd = mkstemp(path);
    Err err = { 0 };
    CHECK(fd >= 0, "no file for tests");
    close(fd);
    for (size_t i = 0; i < COUNT(TEXT); i++) {
        PlanArgs a = PLAN_STANDARD;
        Config c;
        EXPECT(file_write(path, TEXT[i], strlen(TEXT[i]), &err) && plan_args_recipe(&a, path, &mem, &err), "%s: %s",
               TEXT[i], err.msg);
        EXPECT(a.tp == 2 && a.pp == 4 && a.gen_tp == 2 && a.work.answers == 16 && a.work.prompts == 512
                   && a.work.spread == 1.5 && a.park_states,
               "%s", TEXT[i]);
        EXPECT(config_load(&c, CONF_TRAIN, path, NULL, 0, NULL, &err), "%s: %s", TEXT[i], err.msg);
        EXPECT(c.grid.tp == 2 && c.grid.pp == 4 && c.rollout.grid.tp == 2 && c.rollout.n == 16, "%s", TEXT[i]);
        config_free(&c);
    }
    PlanArgs a = PLAN_STANDARD;
    const char *wrong = "plan.spred: 1\n";
    EXPECT(file_write(path, wrong, strlen(wrong), &err) && !plan_args_recipe(&a, path, &mem, &err)
               && strstr(err.msg, "no option plan.spred"),
           "%s", err.msg);
    unlink(path);
}

int main(void) {
    all_accepted();
    spellings();
    planned_again();
    Plan *found = MEM_NEW(&mem, Plan), *theirs = MEM_NEW(&mem, Plan);
    for (size_t i = 0; i < COUNT(ROWS); i++) {
        const char *ours = plan_recipe(ROWS[i].name, ROWS[i].config, found);
        const char *said = plan_recipe(mem_printf(&mem, "%s-published", ROWS[i].name), ROWS[i].config, theirs);
        EXPECT(!*ours, "%s: %s", ROWS[i].name, ours);
        told_in_time(ROWS[i].name, found);
        SimResult sim; /* no stragglers: what is left between the formulas and the events */
        plan_simulate(found, &(SimOpts){ .seed = 1 }, &sim);
        EXPECT(fabs(sim.step / found->step - 1) < 0.1, "%s: %.1f s, played event by event %.1f s", ROWS[i].name,
               found->step, sim.step);
        if (ROWS[i].why)
            EXPECT(strstr(said, ROWS[i].why), "%s-published: '%s' is not said: %s", ROWS[i].name, ROWS[i].why, said);
        else EXPECT(!*said, "%s-published: %s", ROWS[i].name, said);
        if (!strstr(said, "which does not divide"))
            EXPECT(found->step < theirs->step, "%s: %.1f s, published %.1f s", ROWS[i].name, found->step, theirs->step);
        /* the split that was found, timed as the published stack would run it: still better balanced */
        if (!strcmp(ROWS[i].name, "deepseek-v3-96"))
            EXPECT(found->imbalance_stage < 1.2 && theirs->imbalance_stage > 1.3, "balance %.3f against %.3f",
                   found->imbalance_stage, theirs->imbalance_stage);
    }
    const char *mixtral = plan_recipe("mixtral-8x7b-32", "Mixtral-8x7B", found);
    EXPECT(!*mixtral, "mixtral: %s", mixtral);
    mem_free(&mem);
    return test_end();
}
