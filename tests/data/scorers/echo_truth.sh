#!/bin/sh
# echo_truth.sh - scores a sample with its ground truth, a number: shows which reply belongs to which sample.
while read -r line; do
    truth=${line#*\"ground_truth\":\"}
    echo "{\"score\": ${truth%%\"*}}"
done
