# The GPU plugin for the emulated device, built from the same sources as the real one, and a test that trains with it.
add_library(ddp_cuda_emulated MODULE)
ddp_emulated_sources(ddp_cuda_emulated ${host_sources} ${DDP_CUDA_NO_CUDNN_SOURCES})
if(TARGET standin_nccl)
  ddp_emulated_sources(ddp_cuda_emulated ${DDP_CUDA_NCCL_SOURCES})
  target_compile_definitions(ddp_cuda_emulated PRIVATE DDP_CUDA_NCCL)
  target_link_libraries(ddp_cuda_emulated PRIVATE standin_nccl)
endif()
set(symbols ${CMAKE_CURRENT_SOURCE_DIR}/emulated.map)
target_link_libraries(ddp_cuda_emulated PRIVATE emulated_kernels base ${CMAKE_DL_LIBS} m)
target_link_options(ddp_cuda_emulated PRIVATE -Wl,--version-script=${symbols} -Wl,--no-undefined)
set_target_properties(ddp_cuda_emulated PROPERTIES OUTPUT_NAME ddp_cuda LINK_DEPENDS ${symbols}
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/ddp_emulated)

ddp_script_test(gpu_emulated SCRIPT emulated.py TIMEOUT 300 LABELS gpu-emulated)
ddp_script_test(gpu_emulated_long SCRIPT emulated.py ARGS --long TIMEOUT 300 LABELS gpu-emulated long)
ddp_script_test(gpu_emulated_shard SCRIPT emulated_shard.py ARGS parts_have_the_bits_of_the_whole killed_and_resumed TIMEOUT 120
                LABELS gpu-emulated)
ddp_script_test(gpu_emulated_shard_many SCRIPT emulated_shard.py
                ARGS eight_parts_have_the_bits_of_the_whole matrices_are_gathered_as_bf16 muon_killed_and_resumed TIMEOUT 300
                LABELS gpu-emulated long)
