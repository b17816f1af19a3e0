# cudart.cmake - the CUDA backend's host part over a runtime that needs no GPU (tests/shim/cudart), and a hone whose plans are
# counted by it: build/shims/cudart.
set(CUDART ${CMAKE_BINARY_DIR}/shims/cudart)
add_library(hone_cuda_counted SHARED ${CUDA_OBJ} ${CUDA_C} src/base/base.c src/base/threads.c src/tensor/tensor.c tests/shim/cudart/cubin.c tests/shim/cudart/cudart.c)
target_include_directories(hone_cuda_counted PRIVATE tests)
target_include_directories(hone_cuda_counted SYSTEM PRIVATE ${CUDA_HOME}/include)
target_link_libraries(hone_cuda_counted PRIVATE Threads::Threads rt m ${CMAKE_DL_LIBS} ${STDCXX})
target_link_options(hone_cuda_counted PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
set_target_properties(hone_cuda_counted PROPERTIES C_VISIBILITY_PRESET hidden LINKER_LANGUAGE C LIBRARY_OUTPUT_DIRECTORY ${CUDART} OUTPUT_NAME hone_cuda)
add_dependencies(hone_cuda_counted hone_cuda)            # its objects are made once
add_executable(hone_counted src/cmd/main.c tests/shim/cudart/counted.c)
target_link_libraries(hone_counted PRIVATE honelib)
target_link_options(hone_counted PRIVATE -Wl,--wrap=dev_open_dry,--wrap=arena_over,--wrap=model_extend,--wrap=model_backward)
set_target_properties(hone_counted PROPERTIES OUTPUT_NAME hone RUNTIME_OUTPUT_DIRECTORY ${CUDART})
