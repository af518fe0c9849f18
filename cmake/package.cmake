# `cpack` makes two packages from what `cmake --install` installs: a .tar.gz with every library except those of glibc, CUDA and
# the driver, which runs from the directory where it is unpacked; and a Debian package. deploy/package adapts each of them.
set(CPACK_VERBATIM_VARIABLES ON)
find_program(DDP_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(DDP_SHLIBDEPS)
set(CPACK_GENERATOR TGZ)
if(DDP_SHLIBDEPS) # without dpkg-shlibdeps no .deb can be made
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_PACKAGE_NAME ddp)
set(CPACK_PACKAGE_VENDOR "ddp maintainers")
set(CPACK_PACKAGE_CONTACT "ddp maintainers <maintainers@ddp.invalid>")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "data-parallel training as a service of your own machines")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/deploy/package/settings.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/deploy/package/staged.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/deploy/package/packed.cmake)
set(CPACK_DDP_SOURCE ${PROJECT_SOURCE_DIR})

set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openssh-client")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, dataset-fashion-mnist, bible-kjv")
string(JOIN "\n" CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "Start ddp-coordinator once and ddp-agent on every node; then"
  "`ddpctl submit job.yaml` trains on all of them. A job is run by the native"
  "trainer (MLPs and GPTs, on CPUs and NVIDIA GPUs) or is any command, which"
  "sees what torchrun would show it. `ddpctl run` does the same without"
  "daemons, for one job.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/package/postinst
    ${PROJECT_SOURCE_DIR}/deploy/package/prerm ${PROJECT_SOURCE_DIR}/deploy/package/postrm)
# The plugin's libraries belong to no package, but dpkg-shlibdeps must find them.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${DDP_CUDA_LIBRARY_DIRS})
include(CPack)
