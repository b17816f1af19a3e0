/* stuck.c - a scorer's library that does what the answer says: for the tests of outside scorers. */
#include "hone_reward.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

int hone_reward(const HoneRewardIn *in, HoneRewardOut *out) {
    if (strstr(in->solution, "DO_HANG")) sleep(1000);
    if (strstr(in->solution, "DO_LATE")) usleep(400000);
    if (!strncmp(in->solution, "DO_GATE ", 8)) /* until that file is there; for a minute at most */
        for (int i = 0; i < 6000 && access(in->solution + 8, F_OK); i++) usleep(10000);
    if (strstr(in->solution, "DO_NAN")) out->score = NAN;
    else if (strstr(in->solution, "DO_ABSURD")) out->score = 1e308;
    else out->score = (double)in->solution_n;
    memset(out->reason, 'r', sizeof out->reason); /* without the 0 that should end it */
    return strstr(in->solution, "DO_REFUSE") != NULL;
}
