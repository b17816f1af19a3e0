/* test_alerts.c - each rule speaks when what it watches begins, once, and again after it had ended; a usual run is
 * silent. */
#include "run/alerts.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

static Alert told[100];
static int n_told;
static void tell(void *user, const Alert *a) {
    (void)user;
    if (n_told < 100) told[n_told++] = *a;
}

static void usual(double v[WATCHES]) {
    for (int k = 0; k < WATCHES; k++) v[k] = NAN;
    v[WATCH_EXACT] = 0, v[WATCH_LOSS] = -0.01, v[WATCH_GRAD] = 1, v[WATCH_SCORE] = 0.5, v[WATCH_SCORE_MAX] = 1;
    v[WATCH_ENTROPY] = 0.5, v[WATCH_CLIPPED] = 0.1, v[WATCH_FAILED] = 0;
}

/* So many usual steps, then 'odd' with one value for some steps, then usual ones, then odd ones again. */
static void begins(AlertRule rule, AlertWatch which, double odd, int for_steps, int want) {
    Alerts a = { 0 };
    double v[WATCHES];
    n_told = 0;
    for (int s = 1; s <= 400; s++) {
        usual(v);
        bool is_odd = s > 100 && (s - 100) % 150 <= for_steps && (s - 100) % 150 > 0;
        if (is_odd) v[which] = odd;
        if (is_odd && which == WATCH_SCORE) v[WATCH_SCORE_MAX] = odd;
        alerts_step(&a, s, v, tell, NULL);
    }
    int of_rule = 0;
    for (int i = 0; i < n_told; i++) of_rule += told[i].rule == rule;
    EXPECT(of_rule == want, "%s spoke %d times, not %d", alert_rules[rule], of_rule, want);
    if (n_told) EXPECT(told[0].step > 100, "%s at step %d", alert_rules[told[0].rule], (int)told[0].step);
}

int main(void) {
    Alerts a = { 0 };
    double v[WATCHES];
    for (int s = 1; s <= 1000; s++) usual(v), v[WATCH_GRAD] = 1 + 0.5 * sin(s), alerts_step(&a, s, v, tell, NULL);
    EXPECT(n_told == 0, "a usual run says: %s", told[0].text);
    begins(RULE_EXACT, WATCH_EXACT, 1e-7, 3, 2);
    begins(RULE_EXACT, WATCH_EXACT, INFINITY, 1, 2);
    begins(RULE_NOT_FINITE, WATCH_GRAD, INFINITY, 2, 2);
    begins(RULE_SCORE, WATCH_SCORE, 0, 19, 0);
    begins(RULE_SCORE, WATCH_SCORE, 0, 25, 2);
    begins(RULE_ENTROPY, WATCH_ENTROPY, 0.001, 5, 2);
    begins(RULE_ENTROPY_FALLS, WATCH_ENTROPY, 0.2, 10, 2);
    begins(RULE_CLIPPED, WATCH_CLIPPED, 0.51, 5, 2);
    begins(RULE_GRADIENT, WATCH_GRAD, 10.5, 1, 2);
    begins(RULE_GRADIENT, WATCH_GRAD, 9.5, 1, 0);
    begins(RULE_FAILED, WATCH_FAILED, 0.06, 1, 2);
    a = (Alerts){ 0 }, n_told = 0;
    const double val[] = { 0.5, 0.6, 0.55, 0.47, 0.4, 0.59, 0.3 }; /* +-0.06: worse than 0.6 by more than 0.12 */
    for (int i = 0; i < (int)COUNT(val); i++) {
        usual(v);
        v[WATCH_VAL] = val[i], v[WATCH_VAL_LOW] = val[i] - 0.06, v[WATCH_VAL_HIGH] = val[i] + 0.06;
        alerts_step(&a, i, v, tell, NULL);
    }
    EXPECT(n_told == 2 && told[0].rule == RULE_VALIDATION && told[0].step == 3 && told[1].step == 6,
           "%d, the first at %d", n_told, (int)told[0].step);
    n_told = 0;
    alerts_host(&a, 7, &(AlertHost){ 3e9, 2e9, 0.5 }, tell, NULL);
    alerts_host(&a, 8, &(AlertHost){ 3e9, NAN, NAN }, tell, NULL);
    alerts_host(&a, 9, &(AlertHost){ 9e9, 2e9, 0.96 }, tell, NULL);
    EXPECT(n_told == 2 && told[0].rule == RULE_DISK && told[1].rule == RULE_MEMORY, "%d of the machine", n_told);
    n_told = 0;
    alerts_stuck(&a, 9, 29, 1, tell, NULL);
    alerts_stuck(&a, 9, 1000, NAN, tell, NULL);
    EXPECT(!n_told, "%s", told[0].text);
    alerts_stuck(&a, 9, 40, 3, tell, NULL);
    alerts_stuck(&a, 9, 50, 3, tell, NULL);
    EXPECT(n_told == 1 && told[0].rule == RULE_STUCK, "%d of no new step", n_told);
    Buf b = { 0 };
    alert_json(&b, "a\"b", &told[0]);
    EXPECT_STR(
        b.data,
        "{\"run\":\"a\\\"b\",\"step\":9,\"rule\":\"stuck\",\"level\":\"error\",\"text\":\"no new step for 40 s; a "
        "step usually takes 3 s\"}\n");
    char path[] = "/tmp/hone-alert-XXXXXX", line[100], got[200] = "";
    int fd = mkstemp(path);
    AlertCommands c = { 0 };
    snprintf(line, sizeof line, "cat >%s", path);
    EXPECT(alert_call(&c, line, b.data, b.n), "the command was not started");
    while (c.pid[0]) alert_reap(&c), usleep(1000);
    EXPECT(pread(fd, got, sizeof got - 1, 0) == (ssize_t)b.n && !strcmp(got, b.data), "the command got '%s'", got);
    for (int i = 0; i < ALERT_COMMANDS; i++) EXPECT(alert_call(&c, "read x; read y", b.data, b.n), "command %d", i);
    EXPECT(alert_call(&c, "true", b.data, b.n) || c.pid[0], "no place, and nobody runs");
    for (int i = 0; i < ALERT_COMMANDS; i++)
        while (c.pid[i]) alert_reap(&c), usleep(1000);
    close(fd);
    unlink(path);
    buf_free(&b);
    return test_end();
}
