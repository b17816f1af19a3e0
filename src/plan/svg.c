/* svg.c - a plan as a picture: memory of every stage against the card, the step's phases, and
 * one mini-batch's pipeline. */
#include "plan/report.h"

#include "cut/schedule.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 1120, LEFT = 70, RIGHT = 200, PLOT = WIDTH - LEFT - RIGHT };

/* Okabe and Ito's colours, told apart by everybody. */
static const char *const MEM_COLOUR[MEM_COUNT] = { "#0072B2", "#56B4E9", "#CC79A7", "#E69F00", "#F0E442",
                                                   "#D55E00", "#009E73", "#66C2A5", "#999999", "#555555" };
static const char *const PHASE_COLOUR[PH_COUNT] = { "#009E73", "#CC79A7", "#F0E442", "#E69F00",
                                                    "#0072B2", "#D55E00", "#999999" };

/* A cluster's name comes from a file: what means something in XML is written as an entity. */
static void put_xml(Buf *b, const char *text) {
    for (; *text; text++) switch (*text) {
        case '<': buf_puts(b, "&lt;"); break;
        case '>': buf_puts(b, "&gt;"); break;
        case '&': buf_puts(b, "&amp;"); break;
        default: buf_putc(b, (unsigned char)*text < ' ' ? ' ' : *text);
        }
}

static void rect(Buf *b, double x, double y, double w, double h, const char *colour, const char *title) {
    if (w < 0.02 || h < 0.02) return;
    buf_printf(b, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>%s</title></rect>\n",
               x, y, w, h, colour, title);
}
static void text_at(Buf *b, double x, double y, const char *more, const char *text) {
    buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, more);
    put_xml(b, text);
    buf_puts(b, "</text>\n");
}
static void label(Buf *b, double x, double y, const char *text) { text_at(b, x, y, "", text); }
static void centred(Buf *b, double x, double y, const char *text) { text_at(b, x, y, "text-anchor=\"middle\"", text); }
/* Twice, first in white and thick: legible on whatever lies beneath. */
static void figure(Buf *b, double x, double y, const char *text) {
    text_at(b, x, y, "text-anchor=\"middle\" stroke=\"white\" stroke-width=\"4\"", text);
    centred(b, x, y, text);
}
static void warning(Buf *b, double x, double y, const char *text) { text_at(b, x, y, "fill=\"#b00\"", text); }
static void title(Buf *b, double y, const char *text) {
    text_at(b, LEFT, y, "font-weight=\"bold\" font-size=\"15\"", text);
}
static int decimals(double seconds) { return seconds < 0.1 ? 4 : seconds < 10 ? 2 : 1; }

/* Lines every 1, 2 or 5 times a power of ten: between four and ten of them. */
static void ticks(double top, double height, double most, double unit, Buf *b) {
    char text[32];
    double tens = pow(10, floor(log10(most / unit / 4))), n = most / unit / tens;
    double each = n > 20 ? 5 * tens : n > 10 ? 2 * tens : tens;
    for (int tick = 0; tick * each * unit <= most; tick++) {
        double y = top + height - height * tick * each * unit / most;
        buf_printf(b, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, LEFT + PLOT, y, y);
        snprintf(text, sizeof text, "%g", tick * each);
        text_at(b, LEFT - 8, y + 4, "text-anchor=\"end\"", text);
    }
}

static void memory_bars(const Plan *p, int phase, double top, double height, Buf *b) {
    ReportUnit u = report_unit(p);
    char text[128];
    double most = p->cluster.gpu.memory;
    for (int i = 0; i < p->stages; i++) most = fmax(most, p->stage[i].total[phase]);
    most *= 1.08; /* room for the figure on the fullest bar */
    ticks(top, height, most, u.bytes, b);
    double slot = (double)PLOT / p->stages, bar = fmin(slot * 0.8, 60);
    for (int i = 0; i < p->stages; i++) {
        double y = top + height, x = LEFT + slot * i + (slot - bar) / 2;
        for (int k = 0; k < MEM_COUNT; k++) {
            double h = p->stage[i].bytes[phase][k] / most * height;
            snprintf(text, sizeof text, "stage %d, %s: %.2f %s", i, MEM_NAMES[k], p->stage[i].bytes[phase][k] / u.bytes,
                     u.name);
            y -= h;
            rect(b, x, y, bar, h, MEM_COLOUR[k], text);
        }
        snprintf(text, sizeof text, slot < 40 ? "%d" : "%d (%d)", i, p->stage[i].layers);
        centred(b, x + bar / 2, top + height + 16, slot < 14 ? "" : text);
    }
    double line = top + height - p->cluster.gpu.memory / most * height;
    buf_printf(b,
               "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b00\" stroke-width=\"1.5\" "
               "stroke-dasharray=\"6 3\"/>\n",
               LEFT, LEFT + PLOT, line, line);
    snprintf(text, sizeof text, "%.40s: %.0f %s", p->cluster.gpu.name, p->cluster.gpu.memory / u.bytes, u.name);
    warning(b, LEFT + PLOT + 6, line + 4, text);
    for (int i = 0; i < p->stages && bar >= 30; i++) {
        snprintf(text, sizeof text, "%.1f", p->stage[i].total[phase] / u.bytes);
        figure(b, LEFT + slot * (i + 0.5), top + height - p->stage[i].total[phase] / most * height - 4, text);
    }
}

static void memory_legend(const Plan *p, double y, Buf *b) {
    double x = LEFT;
    for (int k = 0; k < MEM_COUNT; k++) {
        bool used = false;
        for (int i = 0; i < p->stages; i++)
            used |= p->stage[i].bytes[PH_UPDATE][k] > 0 || p->stage[i].bytes[PH_ROLLOUT][k] > 0;
        if (!used) continue;
        rect(b, x, y, 12, 12, MEM_COLOUR[k], MEM_NAMES[k]);
        label(b, x + 17, y + 11, MEM_NAMES[k]);
        x += 100;
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
        snprintf(text, sizeof text, "%s: %.*f s, bound by %s", PHASE_NAMES[i], decimals(ph->seconds), ph->seconds,
                 BOUND_NAMES[ph->bound]);
        rect(b, x, top, w, 36, PHASE_COLOUR[i], text);
        bool dark = i == PH_ROLLOUT || i == PH_UPDATE || i == PH_OPTIMIZER;
        if (w > 90)
            text_at(b, x + w / 2, top + 23, dark ? "text-anchor=\"middle\" fill=\"white\"" : "text-anchor=\"middle\"",
                    PHASE_NAMES[i]);
        rect(b, LEFT + (row % 2) * 470, top + 56 + 20 * (row / 2), 12, 12, PHASE_COLOUR[i], text);
        label(b, LEFT + (row % 2) * 470 + 18, top + 67 + 20 * (row / 2), text);
        x += w;
        row++;
    }
    snprintf(text, sizeof text, "%.*f s", decimals(p->step), p->step);
    label(b, LEFT + PLOT + 6, top + 23, text);
}

static double seconds_of(void *user, int stage, const Turn *t) {
    const StagePlan *st = &((const Plan *)user)->stage[stage];
    return (t->backward ? st->t_backward : st->t_forward) / ((const Plan *)user)->layout.g.vpp;
}

static void pipeline(Plan *p, double top, double height, Buf *b) {
    Mem mem = { 0 };
    int S = p->stages, m = (int)p->micro_batches, v = p->layout.g.vpp;
    char text[96];
    if (m > 64) m = 64;
    if (v > 1) m = (m + S - 1) / S * S;
    size_t turns = (size_t)schedule_turns(m, v);
    double *ends = MEM_ARRAY(&mem, double, (size_t)S *turns), all = schedule_play(S, m, v, 0, seconds_of, p, ends),
           row = height / S;
    Turn *list = MEM_ARRAY(&mem, Turn, turns);
    buf_printf(b, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"#e8e8e8\"/>\n", LEFT, top, PLOT,
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
        if (S <= 32) text_at(b, LEFT - 8, top + row * (s + 0.5) + 4, "text-anchor=\"end\"", text);
    }
    snprintf(text, sizeof text, "%.*f s", decimals(all), all);
    label(b, LEFT + PLOT + 6, top + 12, text);
    mem_free(&mem);
}

void report_svg(const Plan *p, Buf *b) {
    Mem mem = { 0 };
    Plan *own = MEM_NEW(&mem, Plan);
    *own = *p;
    double pipe = fmax(60, fmin(260, 22.0 * p->stages)), height = p->stages > 1 ? 870 + pipe : 820;
    Buf line = { 0 };
    buf_printf(b,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" "
               "font-size=\"12\">\n",
               WIDTH, height);
    buf_printf(b, "<rect width=\"%d\" height=\"%.0f\" fill=\"white\"/>\n", WIDTH, height);
    buf_printf(&line, "%s, ", p->sum->model->arch->name);
    report_count(p->sum->total, &line);
    if (p->cluster.gpu.is_cpu) buf_puts(&line, " parameters, on this machine");
    else buf_printf(&line, " parameters, on %d x %s", p->cluster.gpus, p->cluster.gpu.name);
    buf_printf(&line, " (profile %s)", p->profile->name);
    title(b, 28, line.data);
    buf_clear(&line);
    report_layout(p, &line);
    label(b, LEFT, 48, line.data);
    buf_clear(&line);
    buf_printf(&line, "does not fit: %s", p->verdict);
    if (!p->fits) warning(b, LEFT, 66, line.data);
    memory_legend(p, 82, b);
    static const struct {
        Phase phase;
        double y, height;
    } CHARTS[] = { { PH_UPDATE, 120, 220 }, { PH_ROLLOUT, 404, 180 } };
    for (size_t i = 0; i < COUNT(CHARTS); i++) {
        buf_clear(&line);
        buf_printf(&line, "Memory in the %s, %s a rank, by stage (layers)", PHASE_NAMES[CHARTS[i].phase],
                   report_unit(p).name);
        title(b, CHARTS[i].y, line.data);
        memory_bars(p, CHARTS[i].phase, CHARTS[i].y + 14, CHARTS[i].height, b);
    }
    title(b, 654, "One step");
    timeline(p, 666, b);
    if (p->stages > 1) {
        title(b, 834, "One mini-batch through the pipeline: forward (light), backward (dark), by stage");
        pipeline(own, 848, pipe, b);
    }
    buf_puts(b, "</svg>\n");
    buf_free(&line);
    mem_free(&mem);
}
