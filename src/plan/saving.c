/* saving.c - a checkpoint's bytes over the file system's rate.  A save that goes through a small buffer reads the
 * weights until its last bytes: beside the rollout, then the next update waits.  A copy of everything is made at once.
 */
#include "plan/saving.h"

#include <math.h>

static const double GB = 1e9;

/* Parameters that the fullest rank answers for. */
static double fullest(const Plan *p) {
    const Layout *l = &p->layout;
    double most = 0;
    for (int i = 0; i < p->stages; i++)
        most = fmax(most, p->stage[i].dense / (l->g.dp * l->g.cp) + p->stage[i].expert / grid_edp(&l->g));
    return most;
}

Saving plan_saving(const Plan *p) {
    const Machine *g = &p->cluster.gpu;
    double n = p->sum->total, rate = p->cluster.storage, files = p->profile->weight < 4 ? 2 : 4;
    Saving s = { .weights = 4 * n, .averages = 2 * p->saves.average * n };
    int ranks = g->per_node < p->cluster.gpus ? g->per_node : p->cluster.gpus;
    s.staging = (4 + 2 * p->saves.average) * fullest(p) * ranks;
    s.copy = 2 * s.staging / g->host_bandwidth; /* read and written */
    s.room = p->host_worst - p->host[HOST_SAVE] + s.staging <= 0.9 * g->host_memory;
    if (!(rate > 0)) return s;
    s.save = (s.weights + s.averages) / rate;
    s.resume = s.save + files * n / rate;
    s.wait = p->saves.whole ? s.copy : fmax(0, s.save - p->phase[PH_ROLLOUT].seconds);
    s.stop = p->phase[PH_UPDATE].seconds + p->phase[PH_OPTIMIZER].seconds + s.save;
    return s;
}

static bool saves(const Plan *p) { return p->profile->one_copy && (p->cluster.storage > 0 || !p->cluster.gpu.is_cpu); }

static void put_seconds(const Plan *p, const Saving *s, Buf *out) {
    double every = 60 * p->saves.minutes;
    buf_printf(out, "; at %.3g GB/s a save takes %.0f s, a resume %.0f s (with the model's files)\n",
               p->cluster.storage / GB, s->save, s->resume);
    if (p->saves.whole) buf_printf(out, "  a copy of everything (%.0f GB of a node, ", s->staging / GB);
    else buf_puts(out, "  beside the rollout; ");
    buf_printf(out, "%san update waits %.1f s for each", p->saves.whole ? "trainer.save_buffer=0): " : "", s->wait);
    if (every > 0)
        buf_printf(out, ", %.1f %% of a run that saves every %g minutes", 100 * s->wait / (every + s->wait),
                   p->saves.minutes);
    buf_puts(out, "\n");
    if (every > 0 && s->save > every)
        buf_puts(out, "  a save takes longer than the time between two: the next one waits for it\n");
    if (!p->saves.whole && s->wait > s->copy)
        buf_printf(out, "  a copy of everything takes %.0f GB of a node (trainer.save_buffer=0)%s: %.1f s instead\n",
                   s->staging / GB, s->room ? "" : ", which has no room for it", s->copy);
    buf_printf(out, "  told to stop it ends after at most %.0f s, an update that is done first and a save: %s%.0f\n",
               s->stop, "--signal=USR1@", 60 * ceil((s->stop + 30) / 60));
}

void report_saving(const Plan *p, Buf *out) {
    if (!saves(p)) return;
    Saving s = plan_saving(p);
    double all = s.weights + s.averages, unit = all < GB ? 1e6 : GB;
    buf_printf(out, "\ncheckpoint: %.1f %s = weights %.1f + averages %.1f", all / unit, unit < GB ? "MB" : "GB",
               s.weights / unit, s.averages / unit);
    if (s.save > 0) put_seconds(p, &s, out);
    else buf_puts(out, "; seconds: --storage\n");
}

void json_saving(const Plan *p, Buf *out) {
    if (!saves(p)) return;
    Saving s = plan_saving(p);
    const struct {
        const char *name;
        double x;
    } all[] = { { "weights", s.weights },         { "averages", s.averages },       { "save_seconds", s.save },
                { "resume_seconds", s.resume },   { "wait_seconds", s.wait },       { "stop_seconds", s.stop },
                { "staging_of_node", s.staging }, { "storage", p->cluster.storage } };
    buf_puts(out, "\"checkpoint\":{");
    for (size_t i = 0; i < COUNT(all); i++) {
        buf_printf(out, "%s\"%s\":", i ? "," : "", all[i].name);
        json_put_f64(out, all[i].x);
    }
    buf_puts(out, "},");
}

int saving_faults(const Plan *p, Buf *out) {
    if (!p->profile->one_copy || !(p->saves.signal > 0)) return 0;
    Saving s = plan_saving(p);
    if (s.stop <= p->saves.signal) return 0;
    buf_printf(out,
               "mistake: told %.0f s before its end (--signal), the job is killed before its checkpoint is written: an "
               "update that is done first takes %.0f s and the save %.0f: %.0f would do\n",
               p->saves.signal, s.stop - s.save, s.save, 60 * ceil((s.stop + 30) / 60));
    return 1;
}

void plan_stage_saves(Plan *p) {
    if (!saves(p) || p->cluster.gpu.is_cpu || p->saves.whole || !p->fits) return;
    Saving s = plan_saving(p);
    if (!s.room || s.wait <= s.copy) return;
    p->saves.whole = true;
    plan_make(p);
}
