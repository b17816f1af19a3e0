# cuda.cmake - libhone_cuda.so, the CUDA backend, where nvcc is; elsewhere nothing changes.  No GPU is needed to build
# it.  Contraction is off as in C: an fma is written where one is meant.
find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
if(NVCC AND NOT HONE_SANITIZE)
  get_filename_component(CUDA_HOME ${NVCC} REALPATH)
  get_filename_component(CUDA_HOME ${CUDA_HOME}/../.. ABSOLUTE)
  set(NVCC_FLAGS -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++20 --fmad=false --extended-lambda --threads 1 -I ${CMAKE_SOURCE_DIR}/src
                 -Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-D_GNU_SOURCE,-fno-exceptions -diag-suppress=177,550)
  file(GLOB CUDA_SRC CONFIGURE_DEPENDS src/op/cuda/*/*.cu)
  foreach(f ${CUDA_SRC})
    get_filename_component(n ${f} NAME_WE)
    set(o ${CMAKE_BINARY_DIR}/cuda/${n}.o)
    add_custom_command(OUTPUT ${o} COMMAND bash ${CMAKE_SOURCE_DIR}/tools/nvcc.sh ${CMAKE_C_COMPILER_LAUNCHER} ${NVCC} ${NVCC_FLAGS} -MD -MF ${o}.d -c ${f} -o ${o}
                       DEPENDS ${f} ${CMAKE_SOURCE_DIR}/tools/nvcc.sh DEPFILE ${o}.d COMMENT "nvcc ${n}.cu")
    list(APPEND CUDA_OBJ ${o})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  # Attention as racecheck can follow it (op/cuda/sm90/attn_mma.cuh): build/gpu/race has the library with it.
  set(RACE_OBJ ${CUDA_OBJ})
  list(REMOVE_ITEM RACE_OBJ ${CMAKE_BINARY_DIR}/cuda/attn.o)
  set(o ${CMAKE_BINARY_DIR}/cuda/attn_race.o)
  add_custom_command(OUTPUT ${o} COMMAND bash ${CMAKE_SOURCE_DIR}/tools/nvcc.sh ${CMAKE_C_COMPILER_LAUNCHER} ${NVCC} ${NVCC_FLAGS} -DHONE_RACECHECK -lineinfo -MD -MF ${o}.d
                     -c ${CMAKE_SOURCE_DIR}/src/op/cuda/sm90/attn.cu -o ${o} DEPENDS ${CMAKE_SOURCE_DIR}/src/op/cuda/sm90/attn.cu ${CMAKE_SOURCE_DIR}/tools/nvcc.sh DEPFILE ${o}.d COMMENT "nvcc attn.cu for racecheck")
  # What it shares with the program it has a copy of, so that it needs nothing of the program's symbols.
  file(GLOB CUDA_C CONFIGURE_DEPENDS src/op/cuda/*.c src/op/cuda/*/*.c)
  add_library(hone_cuda SHARED ${CUDA_OBJ} ${CUDA_C} src/base/base.c src/base/threads.c src/tensor/tensor.c)
  add_library(hone_cuda_race SHARED EXCLUDE_FROM_ALL ${RACE_OBJ} ${o} ${CUDA_C} src/base/base.c src/base/threads.c src/tensor/tensor.c)
  set_target_properties(hone_cuda hone_cuda_race PROPERTIES C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                        LINKER_LANGUAGE C BUILD_RPATH "$ORIGIN;/usr/local/cuda/lib64" SKIP_BUILD_RPATH OFF)
  foreach(t hone_cuda hone_cuda_race)
    target_include_directories(${t} PRIVATE ${CUDA_HOME}/include)
    target_link_libraries(${t} PRIVATE ${CUDA_HOME}/lib64/libcudart_static.a Threads::Threads rt m ${CMAKE_DL_LIBS} ${STDCXX})
    target_link_options(${t} PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
  endforeach()
  set_target_properties(hone_cuda_race PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/race OUTPUT_NAME hone_cuda)
  # What is not sm90/ is for any card from 8.0 on: compiled, unoptimised, for the oldest of them and the newest, so that no
  # instruction of one kind of card slips into it.  Nothing is made of it.
  set(OTHER_CARDS 80 120 CACHE STRING "capabilities that src/op/cuda/common and plain are compiled for, beside 9.0")
  file(GLOB ANY_CARD CONFIGURE_DEPENDS src/op/cuda/common/*.cu src/op/cuda/plain/*.cu)
  foreach(card ${OTHER_CARDS})
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda/${card})
    foreach(f ${ANY_CARD})
      get_filename_component(n ${f} NAME_WE)
      set(o ${CMAKE_BINARY_DIR}/cuda/${card}/${n}.cubin)
      add_custom_command(OUTPUT ${o} COMMAND ${NVCC} -gencode=arch=compute_${card},code=sm_${card} -O0 -Xcicc -O0 -Xptxas -O0 -std=c++20
                         --extended-lambda --threads 1 -diag-suppress=177,550 -I ${CMAKE_SOURCE_DIR}/src -MD -MF ${o}.d -cubin ${f} -o ${o}
                         DEPENDS ${f} DEPFILE ${o}.d COMMENT "nvcc ${n}.cu for ${card}")
      list(APPEND OTHER_OBJ ${o})
    endforeach()
  endforeach()
  add_custom_target(other_cards ALL DEPENDS ${OTHER_OBJ})
  # A kernel that waits, as NCCL's do (bench/waiting.h).
  set(WAITING ${CMAKE_BINARY_DIR}/cuda/waiting.cubin)
  add_custom_command(OUTPUT ${WAITING} COMMAND ${NVCC} -gencode=arch=compute_90a,code=sm_90a -O3 -cubin ${CMAKE_SOURCE_DIR}/bench/waiting.cu -o ${WAITING}
                     DEPENDS ${CMAKE_SOURCE_DIR}/bench/waiting.cu COMMENT "nvcc waiting.cu")
  add_custom_target(waiting DEPENDS ${WAITING})
endif()

# One program with every test of a GPU (tests/gpu/gpu_*.c, and the op tests on a GPU in float32), and the library beside
# it: build/gpu is what is carried to a bare machine that has one.  Each test's main is a function of its own name.
if(TARGET hone_cuda)
  file(GLOB GPU_TESTS CONFIGURE_DEPENDS tests/gpu/gpu_*.c)
  list(REMOVE_ITEM GPU_TESTS ${CMAKE_SOURCE_DIR}/tests/gpu/gpu_main.c)
  set(OP_TESTS comm/comm sync/sync op/rows op/moe op/product op/head op/head_ends op/attend
    model/exact model/gradient model/ranks engine/engine engine/million train/policy plan/kept)
  set(IN_BOTH model/exact model/ranks engine/engine engine/million train/policy)       # in float32 and in bfloat16
  set(text "")
  foreach(f ${GPU_TESTS})
    get_filename_component(n ${f} NAME_WE)
    string(APPEND text "GPU_TEST(${n}, false)\n")
  endforeach()
  string(APPEND text "GPU_TEST(gpu_attn_brief, false)\n")      # the same on shapes for a sanitizer
  add_executable(hone_gpu_test tests/gpu/gpu_main.c ${GPU_TESTS})
  foreach(t ${OP_TESTS})
    string(REPLACE "/" "_" n test_${t})
    get_filename_component(dir ${t} DIRECTORY)
    get_filename_component(name ${t} NAME)
    set(both false)
    if(t IN_LIST IN_BOTH)
      set(both true)
    endif()
    string(APPEND text "GPU_TEST(${n}, ${both})\n")
    add_library(gpu_${n} OBJECT tests/${dir}/test_${name}.c)
    target_include_directories(gpu_${n} PRIVATE tests)
    target_compile_definitions(gpu_${n} PRIVATE HONE_GPU_TEST main=${n})
    target_compile_options(gpu_${n} PRIVATE -Wno-missing-prototypes -Wno-unused-function)
    target_link_libraries(hone_gpu_test PRIVATE gpu_${n})
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/gen/gpu_list.h CONTENT "${text}")
  target_include_directories(hone_gpu_test PRIVATE tests)
  target_compile_definitions(hone_gpu_test PRIVATE HONE_GPU_TEST)
  target_link_libraries(hone_gpu_test PRIVATE honelib)
  set_target_properties(hone_gpu_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/gpu)
  target_link_options(hone_gpu_test PRIVATE -static-libgcc -s)
  # ... and what is copied beside it: with a new library, again.
  set_target_properties(hone_gpu_test PROPERTIES LINK_DEPENDS "${CMAKE_BINARY_DIR}/libhone_cuda.so;${CMAKE_BINARY_DIR}/race/libhone_cuda.so;${WAITING}")
  add_custom_command(TARGET hone_gpu_test POST_BUILD COMMAND strip -o ${CMAKE_BINARY_DIR}/gpu/libhone_cuda.so $<TARGET_FILE:hone_cuda>)
  add_custom_command(TARGET hone POST_BUILD COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/gpu
                     COMMAND strip -o ${CMAKE_BINARY_DIR}/gpu/hone $<TARGET_FILE:hone>)
  add_custom_command(TARGET hone_gpu_test POST_BUILD COMMAND strip -o ${CMAKE_BINARY_DIR}/gpu/each.so ${CMAKE_BINARY_DIR}/scorers/each.so)
  add_custom_command(TARGET hone_gpu_test POST_BUILD COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/gpu/race
                     COMMAND strip -o ${CMAKE_BINARY_DIR}/gpu/race/libhone_cuda.so $<TARGET_FILE:hone_cuda_race>
                     COMMAND ${CMAKE_COMMAND} -E copy ${WAITING} ${CMAKE_BINARY_DIR}/gpu/waiting.cubin)
  add_dependencies(hone_gpu_test hone_cuda hone_cuda_race waiting each)
  if(TARGET hone_mpi)
    add_custom_command(TARGET hone_mpi POST_BUILD COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/gpu
                       COMMAND strip -o ${CMAKE_BINARY_DIR}/gpu/libhone_mpi.so $<TARGET_FILE:hone_mpi>)
  endif()
endif()
