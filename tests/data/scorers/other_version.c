/* other_version.c - a library made for a version of the interface that does not exist. */
int hone_reward_v0(void);
int hone_reward_v0(void) { return 0; }
