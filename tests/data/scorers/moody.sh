#!/bin/sh
# moody.sh - a scorer that does what the answer says, most of it bad: for the tests of outside scorers.
# $1 seconds it sleeps: a number of the test's own, by which it can see whether any child outlived the scorer.
while read -r line; do
    id=${line#*:}
    id=${id%%,*}
    case $line in
    *DO_SLEEP*) sleep "$1" ;;
    *DO_CRASH*) kill -SEGV $$ ;;
    *DO_EXIT*) exit 3 ;;
    *DO_RUBBISH*) echo 'Loading weights... done' ;;
    *DO_EMPTY*) echo ;;
    *DO_BINARY*) printf '\001\377\000\n' ;;
    *DO_MEGABYTE*) head -c 1048576 /dev/zero | tr '\0' x; sleep "$1" ;;
    *DO_HALF*) printf '{"score":'; exit 0 ;;
    *DO_CLOSE_OUT*) exec 1>&-; sleep "$1" ;;
    *DO_CLOSE_IN*) echo 1; exec 0<&-; sleep "$1" ;;
    *DO_IGNORE_TERM*) trap '' TERM INT HUP; sleep "$1"; sleep "$1" ;;
    *DO_FORK*) sleep "$1" & sleep "$1" & wait ;;
    *DO_ORPHAN*) sleep "$1" & exit 0 ;;
    *DO_STOP*) kill -STOP $$ ;;
    *DO_NAN*) echo '{"score": NaN}' ;;
    *DO_ABSURD*) echo '{"score": -1e308}' ;;
    *DO_HUGE*) echo '{"score": 1e999}' ;;
    *DO_NO_SCORE*) echo '{"scores": 1}' ;;
    *DO_ANOTHER*) echo '{"score": 1, "id": -5}' ;;
    *DO_REFUSE*) echo '{"failed": "I would rather not"}' ;;
    *DO_TWICE*) echo "{\"score\": 1, \"id\": $id}"; echo "{\"score\": 0, \"id\": $id}" ;;
    *DO_ONCE*) echo 1; exit 0 ;;
    *DO_DICT*) echo '{"acc": true, "score": 0.75, "why": ["a", {"b": 1}]}' ;;
    *DO_SHARE*) echo '{"acc": 0.25, "score": 0.75, "pred": 12345678901234567890123}' ;;
    *DO_TRUE*) echo true ;;
    *) echo "{\"score\": 0.5, \"id\": $id}" ;;
    esac
done
