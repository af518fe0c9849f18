# Tests of the operations' kernels, for the emulated device and for real GPUs.
add_executable(test_ops_emulated ops.c ops_launchers.c ops_products.c ops_side.c)
target_compile_options(test_ops_emulated PRIVATE ${DDP_WARNINGS})
target_link_libraries(test_ops_emulated PRIVATE emulated_kernels emulated_cuda device base m)
set_target_properties(test_ops_emulated PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME test_ops_emulated COMMAND test_ops_emulated --quick)
# The seed makes threads run in a random order. In the usual order a missing barrier might not change the result.
set_tests_properties(test_ops_emulated PROPERTIES ${DDP_TEST_PROCESSORS} TIMEOUT 120 LABELS gpu-emulated ENVIRONMENT DDP_EMULATED_SEED=5)
add_test(NAME test_ops_plugin COMMAND test_ops_emulated --quick --plugin)
set_tests_properties(test_ops_plugin PROPERTIES ${DDP_TEST_PROCESSORS} TIMEOUT 120 LABELS gpu-emulated
                     ENVIRONMENT DDP_CUDA_PLUGIN=${CMAKE_BINARY_DIR}/lib/ddp_emulated/libddp_cuda.so)
add_test(NAME test_ops_repeat COMMAND test_ops_emulated --quick --plugin --repeat)
set_tests_properties(test_ops_repeat PROPERTIES ${DDP_TEST_PROCESSORS} TIMEOUT 120 LABELS gpu-emulated
                     ENVIRONMENT DDP_CUDA_PLUGIN=${CMAKE_BINARY_DIR}/lib/ddp_emulated/libddp_cuda.so)

if(TARGET ddp_cuda_objects)
  add_executable(gpu_ops ops.c ops_launchers.c ops_products.c ops_side.c)
  target_link_libraries(gpu_ops PRIVATE ddp_cuda_objects device base m)
  set_target_properties(gpu_ops PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
