# -DDDP_ONLY_PLUGIN=ON: builds libddp_cuda.so and nothing else. It needs the C compiler and the CUDA toolkit, and none of the libraries
# that the programs need, which most GPU machines lack. The programs come from a package of the same version.
if(DDP_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "DDP_ONLY_PLUGIN=ON builds the GPU plugin, and DDP_CUDA=OFF leaves it out: set one of them only")
endif()
set(DDP_CUDA ON)
include(cmake/functions.cmake)
include(cmake/cuda.cmake)
add_subdirectory(base)
add_subdirectory(trainer/device/cuda)
