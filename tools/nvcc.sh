#!/bin/bash
# nvcc.sh COMPILER ARGUMENTS... - the compiler, whose notes that wgmma was serialised are errors: such a kernel is right
# and several times too slow.
said=$("$@" 2>&1)
rc=$?
[ -z "$said" ] || echo "$said"
[ $rc = 0 ] || exit $rc
! grep -qE 'C75(10|13|20)|serialized' <<<"$said" || { echo "nvcc.sh: ptxas serialised a kernel's wgmma (above): see the head of src/op/cuda/sm90/gemm.cuh"; exit 1; }
