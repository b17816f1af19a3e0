/* report_json.c - a plan as one JSON object: per stage and phase {category: bytes}, seconds, bound_by. */
#include "cut/flops.h"
#include "plan/report.h"
#include "plan/saving.h"

#include <string.h>

static void key(Buf *b, const char *name) {
    json_put_str(b, name, strlen(name));
    buf_putc(b, ':');
}
static void number(Buf *b, const char *name, double x, const char *end) {
    key(b, name);
    json_put_f64(b, x);
    buf_puts(b, end);
}
static void text(Buf *b, const char *name, const char *s, const char *end) {
    key(b, name);
    json_put_str(b, s, strlen(s));
    buf_puts(b, end);
}
static void list(Buf *b, const char *const *names, const double *values, int n) {
    buf_putc(b, '{');
    bool first = true;
    for (int i = 0; i < n; i++) {
        if (!(values[i] > 0)) continue;
        if (!first) buf_putc(b, ',');
        number(b, names[i], values[i], "");
        first = false;
    }
    buf_putc(b, '}');
}

static void pictures(const Plan *p, Buf *b) {
    const Workload *w = &p->work;
    if (!(w->images.n > 0)) return;
    key(b, "pictures");
    buf_putc(b, '{');
    number(b, "of_a_question", w->images.n, ","), number(b, "tokens", w->images.tokens, ",");
    number(b, "tower_flops", flops_tower(&p->sum->model->d, w->images.h, w->images.w), "},");
}

static void layout(const Plan *p, Buf *b) {
    const Layout *l = &p->layout;
    const struct {
        const char *name;
        double x;
    } all[] = { { "tp", l->g.tp },
                { "pp", l->g.pp },
                { "ep", l->g.ep },
                { "etp", l->g.etp },
                { "cp", l->g.cp },
                { "vpp", l->g.vpp },
                { "dp", l->g.dp },
                { "expert_dp", grid_edp(&l->g) },
                { "micro_tokens", l->micro_tokens },
                { "offload", l->offload },
                { "rollout_tp", l->gen_tp },
                { "rollout_ep", l->gen_ep } };
    key(b, "layout");
    buf_putc(b, '{');
    for (size_t i = 0; i < COUNT(all); i++) number(b, all[i].name, all[i].x, ",");
    text(b, "recompute", recompute_name(l->drop), ",");
    buf_printf(b, "\"fused_head\":%s,\"park_weights\":%s,\"park_states\":%s,\"split\":[",
               l->fused_head ? "true" : "false", l->park_weights ? "true" : "false", l->park_states ? "true" : "false");
    for (int i = 0; i < l->g.pp; i++) buf_printf(b, "%s%d", i ? "," : "", grid_stage_layers(&l->g, i));
    buf_puts(b, "]},");
}

static void stages(const Plan *p, Buf *b) {
    buf_puts(b, "\"stages\":[");
    for (int i = 0; i < p->stages; i++) {
        const StagePlan *st = &p->stage[i];
        buf_printf(b, "%s{\"layers\":%d,", i ? "," : "", st->layers);
        number(b, "parameters", st->dense + st->expert, ","), number(b, "in_flight", st->in_flight, ",");
        number(b, "forward_seconds", st->t_forward, ","), number(b, "backward_seconds", st->t_backward, ",");
        buf_puts(b, "\"memory\":{");
        bool first = true;
        for (int ph = 0; ph < PH_COUNT; ph++) {
            if (!phase_has_memory(ph)) continue;
            if (!first) buf_putc(b, ',');
            key(b, PHASE_NAMES[ph]);
            list(b, MEM_NAMES, st->bytes[ph], MEM_COUNT);
            first = false;
        }
        buf_puts(b, "}}");
    }
    buf_puts(b, "],");
}

static void phases(const Plan *p, Buf *b) {
    buf_puts(b, "\"phases\":{");
    bool first = true;
    for (int ph = 0; ph < PH_COUNT; ph++) {
        if (!(p->phase[ph].seconds > 0)) continue;
        if (!first) buf_putc(b, ',');
        first = false;
        key(b, PHASE_NAMES[ph]);
        buf_putc(b, '{');
        number(b, "seconds", p->phase[ph].seconds, ",");
        text(b, "bound_by", BOUND_NAMES[p->phase[ph].bound], ",");
        if (p->profile->one_copy && p->cluster.gpus > 1 && plan_sent(p, ph) > 0)
            number(b, "sent_bytes", plan_sent(p, ph), ",");
        key(b, "by");
        list(b, BOUND_NAMES, p->phase[ph].part, BOUND_COUNT);
        buf_putc(b, '}');
    }
    buf_puts(b, "},");
}

void report_json(const Plan *p, Buf *b) {
    buf_putc(b, '{');
    text(b, "family", p->sum->model->arch->name, ","), number(b, "parameters", p->sum->total, ",");
    number(b, "active_parameters", p->sum->active, ","), text(b, "profile", p->profile->name, ",");
    buf_puts(b, "\"cluster\":{");
    text(b, "type", p->cluster.gpu.name, ","), number(b, "gpus", p->cluster.gpus, ","),
        number(b, "memory", p->cluster.gpu.memory, ",");
    number(b, "host_memory", p->cluster.gpu.host_memory, ","), number(b, "flops", p->cluster.gpu.flops, ",");
    Buf why = { 0 };
    if (machine_refused(&p->cluster.gpu, &why)) text(b, "refused", why.data, ",");
    buf_free(&why);
    number(b, "bandwidth", p->cluster.gpu.bandwidth, "},");
    pictures(p, b);
    layout(p, b);
    stages(p, b);
    key(b, "host");
    list(b, HOST_NAMES, p->host, HOST_COUNT);
    buf_putc(b, ',');
    number(b, "host_worst", p->host_worst, ","), number(b, "host_mean", p->host_mean, ",");
    number(b, "kv_tokens", p->kv_tokens, ","), number(b, "kv_bytes_per_token", p->kv_per_token, ",");
    phases(p, b);
    json_saving(p, b);
    number(b, "step_seconds", p->step, ","), number(b, "tokens_per_second_per_gpu", p->tokens_per_gpu, ",");
    number(b, "mfu", p->mfu, ","), number(b, "mfu_before_2026", p->mfu_old, ","),
        number(b, "mfu_exact", p->mfu_exact, ",");
    number(b, "mfu_hardware", p->mfu_hardware, ",");
    buf_printf(b, "\"fits\":%s,", p->fits ? "true" : "false");
    text(b, "short_of", p->verdict, "");
    if (!p->fits) {
        Buf change = { 0 };
        if (plan_remedy(p, &change)) {
            buf_putc(b, ',');
            text(b, "smallest_change", change.data, "");
        }
        buf_free(&change);
    }
    buf_puts(b, "}\n");
}
