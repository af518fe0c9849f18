# The plugin's sources, with paths from the project's root: what nvcc and cc compile into libddp_cuda.so, and what
# tests/standins/cuda compiles for a CPU.
set(DDP_CUDA_SOURCES cuda.c error.c fetch.c memory.c transfer.c graph.c gemm/gemm.c gemm/gemm_choices.c gemm/gemm_layer.c gemm/gemm_plan.c gemm/gemm_time.c muon.c operations.c profile.c profile_ops.c plugin_entry.c
    kernels/flat.cu kernels/dense.cu kernels/embed.cu kernels/norm.cu kernels/norm_grad.cu kernels/loss.cu kernels/muon.cu kernels/optim.cu kernels/digest.cu attention.c kernels/attention.cu kernels/attention_plain.cu)
# With cuDNN's header, and without it.
set(DDP_CUDA_CUDNN_SOURCES cudnn/attention_cudnn.c cudnn/cudnn_attention.c cudnn/cudnn_engine.c cudnn/cudnn_faults.c cudnn/cudnn_graph.c cudnn/cudnn_load.c)
set(DDP_CUDA_NO_CUDNN_SOURCES cudnn/attention_no_cudnn.c)
# With NCCL's header; the rest sees DDP_CUDA_NCCL defined. A stand-in brings its own loader.
set(DDP_CUDA_NCCL_SOURCES nccl/nccl.c nccl/nccl_close.c nccl/nccl_environment.c nccl/nccl_join.c nccl/nccl_wait.c)
set(DDP_CUDA_NCCL_LOADER nccl/nccl_load.c)
foreach(list DDP_CUDA_SOURCES DDP_CUDA_CUDNN_SOURCES DDP_CUDA_NO_CUDNN_SOURCES DDP_CUDA_NCCL_SOURCES
        DDP_CUDA_NCCL_LOADER)
  list(TRANSFORM ${list} PREPEND ${PROJECT_SOURCE_DIR}/trainer/device/cuda/)
endforeach()
