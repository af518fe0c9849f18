# The plugin's sources, with paths from the project's root: what nvcc and cc compile into libddp_cuda.so, and what
# tests/standins/cuda compiles for a CPU.
set(DDP_CUDA_SOURCES cuda.c error.c memory.c transfer.c graph.c gemm.c gemm_time.c muon.c operations.c plugin_entry.c
    kernels/flat.cu kernels/dense.cu kernels/embed.cu kernels/norm.cu kernels/norm_grad.cu kernels/loss.cu kernels/muon.cu kernels/optim.cu kernels/digest.cu attention.c kernels/attention.cu kernels/attention_plain.cu)
# With cuDNN's header, and without it.
set(DDP_CUDA_CUDNN_SOURCES cudnn/attention_cudnn.c cudnn/cudnn_attention.c cudnn/cudnn_graph.c cudnn/cudnn_load.c)
set(DDP_CUDA_NO_CUDNN_SOURCES cudnn/attention_no_cudnn.c)
# With NCCL; the rest sees DDP_CUDA_NCCL defined.
set(DDP_CUDA_NCCL_SOURCES nccl/nccl.c nccl/nccl_close.c nccl/nccl_environment.c nccl/nccl_wait.c)
foreach(list DDP_CUDA_SOURCES DDP_CUDA_CUDNN_SOURCES DDP_CUDA_NO_CUDNN_SOURCES DDP_CUDA_NCCL_SOURCES)
  list(TRANSFORM ${list} PREPEND ${PROJECT_SOURCE_DIR}/trainer/device/cuda/)
endforeach()
