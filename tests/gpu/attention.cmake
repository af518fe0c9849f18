# Tests of attention. Our own kernels run on the emulated device. If cuDNN's headers are there, its graphs run on a stand-in,
# and the real library only plans them. If CUDA is there, attention.c and attention_bench.c are also built for real GPUs.
set(cuda ${PROJECT_SOURCE_DIR}/trainer/device/cuda)

# gpu_attention_test(name sources...): builds attention.c with these sources for the emulated device
function(gpu_attention_test name)
  add_executable(${name} attention.c ${ARGN})
  target_compile_options(${name} PRIVATE ${DDP_WARNINGS})
  target_link_libraries(${name} PRIVATE emulated_kernels emulated_cuda device base m)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

gpu_attention_test(test_attention_emulated ${cuda}/attention.c ${cuda}/cudnn/attention_no_cudnn.c)
add_test(NAME test_attention_emulated COMMAND test_attention_emulated)
set_tests_properties(test_attention_emulated PROPERTIES ${DDP_TEST_PROCESSORS} TIMEOUT 120 LABELS gpu-emulated ENVIRONMENT DDP_EMULATED_SEED=1)

find_file(DDP_CUDA_STUB libcuda.so HINTS ${CUDAToolkit_LIBRARY_DIR}/stubs NO_DEFAULT_PATH)
mark_as_advanced(DDP_CUDA_STUB)
if(DDP_CUDA_CUDNN)
  set(by_cudnn ${cuda}/cudnn/attention_cudnn.c ${cuda}/cudnn/cudnn_graph.c ${cuda}/cudnn/cudnn_attention.c
                ${cuda}/cudnn/cudnn_engine.c ${cuda}/cudnn/cudnn_faults.c)

  # A stand-in for cuDNN executes the graphs: all rows at once, and one row at a time (workspace limit 0).
  gpu_attention_test(test_attention_cudnn ${cuda}/attention.c ${by_cudnn} ${PROJECT_SOURCE_DIR}/tests/standins/cuda/cudnn.c)
  target_include_directories(test_attention_cudnn SYSTEM PRIVATE ${PROJECT_SOURCE_DIR}/tests/standins/cuda/include
                             ${DDP_CUDNN_INCLUDE})
  foreach(megabytes 2048 0)
    add_test(NAME test_attention_cudnn_${megabytes} COMMAND test_attention_cudnn)
    set_tests_properties(test_attention_cudnn_${megabytes} PROPERTIES ${DDP_TEST_PROCESSORS} TIMEOUT 120 LABELS gpu-emulated
                         ENVIRONMENT DDP_CUDNN_WORKSPACE_MB=${megabytes})
  endforeach()

  # Which kernels are chosen, by version and shape.
  ddp_unit_test(test_attention_choice LABELS gpu-emulated LINK emulated_kernels emulated_cuda base m
                SOURCES ${cuda}/attention.c ${by_cudnn} ${PROJECT_SOURCE_DIR}/tests/standins/cuda/cudnn.c)
  target_include_directories(test_attention_choice SYSTEM PRIVATE ${PROJECT_SOURCE_DIR}/tests/standins/cuda/include
                             ${DDP_CUDNN_INCLUDE})

  # The real cuDNN plans the graphs for a description of a GPU.
  add_executable(test_cudnn_plans cudnn_plans.c ${cuda}/cudnn/cudnn_load.c ${cuda}/cudnn/cudnn_graph.c
                 ${cuda}/cudnn/cudnn_attention.c ${cuda}/cudnn/cudnn_engine.c)
  target_compile_options(test_cudnn_plans PRIVATE ${DDP_WARNINGS})
  target_include_directories(test_cudnn_plans SYSTEM PRIVATE ${DDP_CUDNN_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(test_cudnn_plans PRIVATE base ${CMAKE_DL_LIBS})
  set_target_properties(test_cudnn_plans PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME test_cudnn_plans COMMAND test_cudnn_plans ${DDP_CUDA_STUB})
  set_tests_properties(test_cudnn_plans PROPERTIES ${DDP_TEST_PROCESSORS} TIMEOUT 180 LABELS "gpu-emulated;long" SKIP_RETURN_CODE 77)
endif()

# Links the plugin's object files, because nvcc takes long to compile them.
if(TARGET ddp_cuda_objects)
  foreach(name attention attention_bench)
    add_executable(gpu_${name} ${name}.c)
    target_compile_options(gpu_${name} PRIVATE $<$<COMPILE_LANGUAGE:C>:${DDP_WARNINGS}>)
    target_link_libraries(gpu_${name} PRIVATE ddp_cuda_objects device base m)
    set_target_properties(gpu_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endforeach()
endif()
