/* svg.c - a plan as a picture: memory of every stage against the card, the step's phases, and one mini-batch's pipeline. */
#include "plan/report.h"

#include "plan/schedule.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 1120, LEFT = 70, RIGHT = 200, PLOT = WIDTH - LEFT - RIGHT };

/* Okabe and Ito's colours, told apart by everybody. */
static const char *const MEM_COLOUR[MEM_COUNT] = { "#0072B2", "#56B4E9", "#CC79A7", "#E69F00", "#F0E442",
                                                   "#D55E00", "#009E73", "#66C2A5", "#999999", "#555555" };
static const char *const PHASE_COLOUR[PH_COUNT] = { "#009E73", "#CC79A7", "#F0E442", "#E69F00",
                                                    "#0072B2", "#D55E00", "#999999" };

static void rect(Buf *b, double x, double y, double w, double h, const char *colour, const char *title) {
    if (w < 0.02 || h < 0.02) return;
    buf_printf(b, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>%s</title></rect>\n",
               x, y, w, h, colour, title);
}
static void label(Buf *b, double x, double y, const char *anchor, const char *text) {
    buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text);
}
static void title(Buf *b, double y, const char *text) {
    buf_printf(b, "<text x=\"%d\" y=\"%.1f\" font-weight=\"bold\" font-size=\"15\">%s</text>\n", LEFT, y, text);
}

static void memory_bars(const Plan *p, int phase, double top, double height, Buf *b) {
    char text[128];
    double most = p->cluster.gpu.memory;
    for (int i = 0; i < p->stages; i++) most = fmax(most, p->stage[i].total[phase]);
    most *= 1.05;
    double tens = pow(10, floor(log10(most / 1e9 / 2))), each = most / 1e9 / tens > 5 ? 2 * tens : tens;
    for (int tick = 0; tick * each <= most / 1e9; tick++) {
        double gb = tick * each, y = top + height - height * gb * 1e9 / most;
        buf_printf(b, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, LEFT + PLOT, y, y);
        snprintf(text, sizeof text, "%g", gb);
        label(b, LEFT - 8, y + 4, "end", text);
    }
    double slot = (double)PLOT / p->stages, bar = fmin(slot * 0.8, 60);
    for (int i = 0; i < p->stages; i++) {
        double y = top + height, x = LEFT + slot * i + (slot - bar) / 2;
        for (int k = 0; k < MEM_COUNT; k++) {
            double h = p->stage[i].bytes[phase][k] / most * height;
            snprintf(text, sizeof text, "stage %d, %s: %.2f GB", i, MEM_NAMES[k], p->stage[i].bytes[phase][k] / 1e9);
            y -= h;
            rect(b, x, y, bar, h, MEM_COLOUR[k], text);
        }
        snprintf(text, sizeof text, p->stages > 40 ? "" : p->stages > 20 ? "%d" : "%d (%d)", i, p->stage[i].layers);
        label(b, x + bar / 2, top + height + 16, "middle", text);
    }
    double y = top + height - p->cluster.gpu.memory / most * height;
    buf_printf(b,
               "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b00\" stroke-width=\"1.5\" "
               "stroke-dasharray=\"6 3\"/>\n",
               LEFT, LEFT + PLOT, y, y);
    snprintf(text, sizeof text, "%s: %.0f GB", p->cluster.gpu.name, p->cluster.gpu.memory / 1e9);
    label(b, LEFT + PLOT + 6, y + 4, "start", text);
}

static void memory_legend(const Plan *p, double top, Buf *b) {
    for (int k = 0, row = 0; k < MEM_COUNT; k++) {
        bool used = false;
        for (int i = 0; i < p->stages; i++)
            used |= p->stage[i].bytes[PH_UPDATE][k] > 0 || p->stage[i].bytes[PH_ROLLOUT][k] > 0;
        if (!used) continue;
        rect(b, LEFT + PLOT + 20, top + 20 * row, 12, 12, MEM_COLOUR[k], MEM_NAMES[k]);
        label(b, LEFT + PLOT + 38, top + 20 * row + 11, "start", MEM_NAMES[k]);
        row++;
    }
}

static void timeline(const Plan *p, double top, Buf *b) {
    char text[160];
    double x = LEFT;
    int row = 0;
    for (int i = 0; i < PH_COUNT; i++) {
        const PhasePlan *ph = &p->phase[i];
        double w = ph->seconds / p->step * PLOT;
        if (!(ph->seconds > 0)) continue;
        snprintf(text, sizeof text, "%s: %.1f s, bound by %s", PHASE_NAMES[i], ph->seconds, BOUND_NAMES[ph->bound]);
        rect(b, x, top, w, 36, PHASE_COLOUR[i], text);
        bool dark = i == PH_ROLLOUT || i == PH_UPDATE || i == PH_OPTIMIZER;
        if (w > 90)
            buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\">%s</text>\n", x + w / 2,
                       top + 23, dark ? "white" : "black", PHASE_NAMES[i]);
        rect(b, LEFT + (row % 2) * 470, top + 56 + 20 * (row / 2), 12, 12, PHASE_COLOUR[i], text);
        label(b, LEFT + (row % 2) * 470 + 18, top + 67 + 20 * (row / 2), "start", text);
        x += w;
        row++;
    }
    snprintf(text, sizeof text, "%.1f s", p->step);
    label(b, LEFT + PLOT + 6, top + 23, "start", text);
}

static double seconds_of(void *user, int stage, const Turn *t) {
    const StagePlan *st = &((const Plan *)user)->stage[stage];
    return (t->backward ? st->t_backward : st->t_forward) / ((const Plan *)user)->layout.vpp;
}

static void pipeline(Plan *p, double top, double height, Buf *b) {
    Mem mem = { 0 };
    int S = p->stages, m = (int)p->micro_batches, v = p->layout.vpp;
    char text[96];
    if (m > 64) m = 64;
    if (v > 1) m = (m + S - 1) / S * S;
    size_t turns = (size_t)schedule_turns(m, v);
    double *ends = MEM_ARRAY(&mem, double, (size_t)S *turns), all = schedule_play(S, m, v, 0, seconds_of, p, ends),
           row = height / S;
    Turn *list = MEM_ARRAY(&mem, Turn, turns);
    buf_printf(b, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"#f2f2f2\"/>\n", LEFT, top, PLOT,
               height);
    for (int s = 0; s < S; s++) {
        schedule_fill(list, s, S, m, v);
        for (size_t k = 0; k < turns; k++) {
            double t = seconds_of(p, s, &list[k]), x = LEFT + (ends[(size_t)s * turns + k] - t) / all * PLOT;
            snprintf(text, sizeof text, "stage %d, micro-batch %d, %s", s, list[k].micro,
                     list[k].backward ? "backward" : "forward");
            rect(b, x, top + row * s, fmax(0.1, t / all * PLOT - 0.3), row * 0.9,
                 list[k].backward ? "#0072B2" : "#56B4E9", text);
        }
        snprintf(text, sizeof text, "%d", s);
        if (S <= 32) label(b, LEFT - 8, top + row * (s + 0.5) + 4, "end", text);
    }
    snprintf(text, sizeof text, "%.2f s", all);
    label(b, LEFT + PLOT + 6, top + 12, "start", text);
    mem_free(&mem);
}

void report_svg(const Plan *p, Buf *b) {
    Mem mem = { 0 };
    Plan *own = MEM_NEW(&mem, Plan);
    *own = *p;
    double pipe = fmax(60, fmin(260, 22.0 * p->stages)), height = 900 + pipe;
    Buf line = { 0 };
    buf_printf(b,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" "
               "font-size=\"12\">\n",
               WIDTH, height);
    buf_printf(b, "<rect width=\"%d\" height=\"%.0f\" fill=\"white\"/>\n", WIDTH, height);
    buf_printf(&line, "%s, %.1f B parameters, on %d x %s (profile %s)", p->sum->model->arch->name, p->sum->total / 1e9,
               p->cluster.gpus, p->cluster.gpu.name, p->profile->name);
    title(b, 28, line.data);
    buf_clear(&line);
    report_layout(p, &line);
    label(b, LEFT, 48, "start", line.data);
    if (!p->fits) buf_printf(b, "<text x=\"%d\" y=\"66\" fill=\"#b00\">does not fit: %s</text>\n", LEFT, p->verdict);
    title(b, 92, "GPU memory in the update, GB, by stage (layers)");
    memory_bars(p, PH_UPDATE, 104, 220, b);
    memory_legend(p, 124, b);
    title(b, 376, "GPU memory in the rollout, GB, by stage");
    memory_bars(p, PH_ROLLOUT, 388, 180, b);
    title(b, 626, "One step");
    timeline(p, 638, b);
    title(b, 806, "One mini-batch through the pipeline: forward (light), backward (dark), by stage");
    pipeline(own, 820, pipe, b);
    buf_puts(b, "</svg>\n");
    buf_free(&line);
    mem_free(&mem);
}
