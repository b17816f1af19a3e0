/* test_report.c - what a plan looks like: units that suit its size, one verdict, a picture
 * that is XML whatever a cluster is called, JSON that adds up. */
#include "base/json.h"
#include "plan/report.h"
#include "test.h"

#include <math.h>

static Mem mem;

static Plan *planned(const char *config, const char *cluster, int tp, int pp, int vpp, const char *recompute) {
    Err err = { 0 };
    ModelDesc *m = MEM_NEW(&mem, ModelDesc);
    ModelSum *s = MEM_NEW(&mem, ModelSum);
    Plan *p = MEM_NEW(&mem, Plan);
    CHECK(model_desc_load(m, config, &mem, &err), "%s", err.msg);
    model_sum(s, m);
    p->sum = s, p->profile = profile_find("hone");
    CHECK(cluster_parse(&p->cluster, cluster, &mem, &err), "%s", err.msg);
    p->work = (Workload){ 64, 8, 64, 20, 24, 20, 24, 1, true, 1 };
    p->layout = (Layout){ .g.tp = tp,
                          .g.pp = pp,
                          .g.ep = 1,
                          .g.cp = 1,
                          .g.vpp = vpp,
                          .fused_head = true,
                          .micro_tokens = 4096,
                          .gen_tp = tp,
                          .gen_ep = 1,
                          .gen_use = 0.9 };
    CHECK(recompute_parse(&p->layout.drop, recompute, &err), "%s", err.msg);
    grid_split(&p->layout.g, NULL, s->layers, &err);
    CHECK(layout_check(&p->layout, s, &p->cluster, &p->work, &err), "%s", err.msg);
    plan_make(p);
    return p;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void says(const Plan *p, const char *const *wanted) {
    Buf b = { 0 };
    report_text(p, NULL, true, &b);
    report_verdict(p, &b);
    for (; *wanted; wanted++) EXPECT(strstr(b.data, *wanted), "'%s' is not said: %s", *wanted, b.data);
    EXPECT(count(b.data, "\nfits") + count(b.data, "\nDOES NOT FIT") == 1, "not one verdict: %s", b.data);
    EXPECT(!strstr(b.data, "nan") && !strstr(b.data, "inf "), "a figure is none: %s", b.data);
    buf_free(&b);
}

static void texts(void) {
    const char *large[] = { "7.62 B parameters", "in 1 node with", "GPU memory, GB of 80.0", "1 mini-batch of", NULL },
               *small[] = { "58 k parameters", "GPU memory, GB of 80.0", NULL },
               *none[] = { "DOES NOT FIT", "short by", "smallest change that helps", NULL };
    says(planned(FIXTURE("configs/Qwen2.5-7B.json"), "H100x8", 2, 2, 2, "full"), large);
    says(planned(FIXTURE("models/qwen3_moe/config.json"), "H100x1", 1, 1, 1, "full"), small);
    Plan *full = planned(FIXTURE("configs/Qwen2.5-7B.json"), "H100x8", 1, 1, 1, "none");
    full->layout.micro_tokens = 8192;
    plan_make(full);
    says(full, none);
    Plan *p = planned(FIXTURE("models/qwen3_moe/config.json"), "this", 1, 1, 1, "full");
    Profile own = *p->profile;
    own.runtime = own.gen_work = 50e6;
    p->profile = &own;
    plan_make(p);
    const char *here[] = { "this machine", "\nmemory, MB of ", " tokens/s\n", NULL };
    says(p, here);
    p->arenas = 12.3e6;
    const char *counted[] = { "fits: 12.3 of ", NULL };
    says(p, counted);
}

/* Every text is closed, nothing is left of what XML would take for its own, and each stage has its bars. */
static void pictures(void) {
    Plan *p = planned(FIXTURE("configs/Qwen2.5-7B.json"), FIXTURE("plan/cluster.yaml"), 2, 4, 2, "selective");
    Buf b = { 0 };
    report_svg(p, &b);
    EXPECT(strstr(b.data, "ours &amp; theirs") && !strstr(b.data, "ours & theirs"), "the cluster's name");
    EXPECT(count(b.data, "<text") == count(b.data, "</text>") && count(b.data, "<rect") > 8 * 4, "texts and bars");
    EXPECT(!strstr(b.data, "nan") && !strstr(b.data, "=\"-"), "a coordinate is none, or left of the picture");
    for (int i = 0; i < 4; i++) EXPECT(strstr(b.data, mem_printf(&mem, ">%d (7)<", i)), "stage %d is not named", i);
    buf_free(&b);
}

static void json(void) {
    Plan *p = planned(FIXTURE("configs/Qwen2.5-7B.json"), FIXTURE("plan/cluster.yaml"), 2, 4, 2, "selective");
    Buf b = { 0 };
    Err err = { 0 };
    Json j;
    report_json(p, &b);
    bool ok = json_parse(&j, b.data, b.n, &mem, &err);
    EXPECT(ok, "%s", err.msg);
    const Json *phases = ok ? json_get(&j, "phases") : NULL;
    double step = 0;
    for (size_t i = 0; phases && i < phases->n; i++) {
        const Json *ph = &phases->members[i].value, *by = json_get(ph, "by");
        double sum = 0, seconds = json_number(json_get(ph, "seconds"));
        for (size_t k = 0; by && k < by->n; k++) sum += json_number(&by->members[k].value);
        EXPECT(fabs(sum / seconds - 1) < 1e-6, "%s: causes add up to %g of %g s", phases->members[i].key, sum, seconds);
        step += seconds;
    }
    EXPECT(phases && fabs(step / json_number(json_get(&j, "step_seconds")) - 1) < 1e-6, "phases add up to %g s", step);
    buf_free(&b);
}

int main(void) {
    texts();
    pictures();
    json();
    mem_free(&mem);
    return test_end();
}
