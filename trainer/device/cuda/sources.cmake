# The plugin's sources, with paths from the project's root: what nvcc and cc compile into libddp_cuda.so, and what
# tests/gpu/emulate compiles for a CPU.
set(DDP_CUDA_SOURCES cuda.c error.c memory.c transfer.c graph.c gemm.c gemm_time.c operations.c plugin_entry.c
    flat.cu dense.cu embed.cu norm.cu norm_grad.cu loss.cu optim.cu digest.cu attention.c attention.cu attention_plain.cu)
# With cuDNN's header, and without it.
set(DDP_CUDA_CUDNN_SOURCES attention_cudnn.c cudnn_attention.c cudnn_graph.c cudnn_load.c)
set(DDP_CUDA_NO_CUDNN_SOURCES attention_alone.c)
# With NCCL; the rest sees DDP_CUDA_NCCL defined.
set(DDP_CUDA_NCCL_SOURCES nccl.c nccl_close.c nccl_environment.c nccl_wait.c)
foreach(list DDP_CUDA_SOURCES DDP_CUDA_CUDNN_SOURCES DDP_CUDA_NO_CUDNN_SOURCES DDP_CUDA_NCCL_SOURCES)
  list(TRANSFORM ${list} PREPEND ${PROJECT_SOURCE_DIR}/trainer/device/cuda/)
endforeach()
