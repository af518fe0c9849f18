# Toolchain file: cross-compiles for 64-bit ARM with Debian's compiler and multiarch libraries (lib...-dev:arm64).
# scripts/test-aarch64 uses it, where the kernel starts ARM programs with qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
