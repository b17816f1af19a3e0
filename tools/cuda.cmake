# cuda.cmake - libhone_cuda.so, the CUDA backend, where nvcc is; elsewhere nothing changes.  No GPU is needed to build it.
# Contraction is off as in C: an fma is written where one is meant.
find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
if(NVCC AND NOT HONE_SANITIZE)
  get_filename_component(CUDA_HOME ${NVCC} REALPATH)
  get_filename_component(CUDA_HOME ${CUDA_HOME}/../.. ABSOLUTE)
  set(NVCC_FLAGS -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++20 --fmad=false --extended-lambda --threads 1 -I ${CMAKE_SOURCE_DIR}/src
                 -Xcompiler=-fPIC,-fvisibility=hidden,-D_GNU_SOURCE,-fno-exceptions -diag-suppress=177,550)
  file(GLOB CUDA_SRC CONFIGURE_DEPENDS src/op/cuda/*.cu)
  foreach(f ${CUDA_SRC})
    get_filename_component(n ${f} NAME_WE)
    set(o ${CMAKE_BINARY_DIR}/cuda/${n}.o)
    add_custom_command(OUTPUT ${o} COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${NVCC} ${NVCC_FLAGS} -MD -MF ${o}.d -c ${f} -o ${o}
                       DEPENDS ${f} DEPFILE ${o}.d COMMENT "nvcc ${n}.cu")
    list(APPEND CUDA_OBJ ${o})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  # What it shares with the program it has a copy of, so that it needs nothing of the program's symbols.
  file(GLOB CUDA_C CONFIGURE_DEPENDS src/op/cuda/*.c)
  add_library(hone_cuda SHARED ${CUDA_OBJ} ${CUDA_C} src/base/base.c src/base/threads.c src/tensor/tensor.c)
  set_target_properties(hone_cuda PROPERTIES C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                        LINKER_LANGUAGE C BUILD_RPATH "$ORIGIN;/usr/local/cuda/lib64" SKIP_BUILD_RPATH OFF)
  target_include_directories(hone_cuda PRIVATE ${CUDA_HOME}/include)
  target_link_libraries(hone_cuda PRIVATE ${CUDA_HOME}/lib64/libcudart_static.a ${CUDA_HOME}/lib64/libcublasLt.so.13
                        Threads::Threads rt m ${CMAKE_DL_LIBS} ${STDCXX})
  target_link_options(hone_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
endif()
