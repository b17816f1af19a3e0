/* verify_balance.h - splits the rows of a reference file of partitions and compares.
 *
 * The file is a list of {"lengths": [...], "k": parts, "equal_size": bool}, with what the reference came to where it is
 * known: the largest and the smallest sum of a part ("max_sum", "min_sum") and its cost of the first sequences
 * ("workload").  Ours goes to out in the same form, with each sequence's part and the largest sum over the mean. */
#ifndef CMD_VERIFY_VERIFY_BALANCE_H
#define CMD_VERIFY_VERIFY_BALANCE_H

/* From file to file (out NULL: only compare): a row fails if its largest sum is above the reference's or a cost is
 * another.  Prints a line a row that fails and a summary.  Exit code. */
int verify_balance(const char *file, const char *out);

#endif
