# Sets TIERING_HAVE_CUDA (0/1): whether the CUDA part is built, and CMAKE_CUDA_ARCHITECTURES where nobody has. TIERING_CUDA
# is AUTO (for the GPUs that are here, where there is an nvcc too), ON (the same; for TIERING_CUDA_SERVERS where there is no
# GPU), ALL (for every architecture that nvcc knows since the first of those: wheels), or OFF.
set(TIERING_HAVE_CUDA 0)
set(TIERING_OLDEST_CUDA 12.0)  # the first with C++20
# Code for the GPUs of servers, and text that newer and older ones compile when it is loaded.
set(TIERING_CUDA_SERVERS 75-virtual 80-real 90)
set(TIERING_OLDEST_GPU 75)

# The compute capabilities of this machine's GPUs, as CMake writes architectures.
function(find_gpus result)
  set(${result} "" PARENT_SCOPE)
  find_program(TIERING_NVIDIA_SMI nvidia-smi)
  if(TIERING_NVIDIA_SMI)
    execute_process(COMMAND ${TIERING_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE printed RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]" gpus "${printed}")
      list(REMOVE_DUPLICATES gpus)
      string(REPLACE "." "" gpus "${gpus}")
      set(${result} "${gpus}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

set(TIERING_GPUS "")
set(TIERING_CUDA_WANTED 0)
if(TIERING_CUDA STREQUAL "ON" OR TIERING_CUDA STREQUAL "ALL")
  set(TIERING_CUDA_WANTED 1)
endif()
if(NOT TIERING_CUDA STREQUAL "OFF")
  find_gpus(TIERING_GPUS)
endif()

if(NOT TIERING_CUDA_WANTED AND TIERING_GPUS STREQUAL "")
  message(STATUS "tiering: CUDA part: 0 (TIERING_CUDA=${TIERING_CUDA}; AUTO builds it where there is a GPU)")
elseif(CMAKE_VERSION VERSION_LESS 3.26)
  # It stops at the first target, because it does not know nvcc's C++20.
  if(TIERING_CUDA_WANTED)
    message(FATAL_ERROR "TIERING_CUDA=${TIERING_CUDA} needs CMake 3.26 or newer, found ${CMAKE_VERSION}: pip install cmake")
  endif()
  message(STATUS "tiering: CUDA part: 0 (needs CMake 3.26 or newer, found ${CMAKE_VERSION})")
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)  # nvcc links the static runtime unless it is told, which a small toolkit may lack
    unset(CMAKE_CUDA_COMPILER CACHE)
    unset(CMAKE_CUDA_COMPILER)
    set(ENV{CUDAFLAGS} "-cudart shared $ENV{CUDAFLAGS}")
    check_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES ${TIERING_GPUS})
      if(TIERING_CUDA STREQUAL "ALL" OR TIERING_GPUS STREQUAL "")
        set(CMAKE_CUDA_ARCHITECTURES ${TIERING_CUDA_SERVERS})
      endif()
    endif()
    enable_language(CUDA)
    if(TIERING_CUDA STREQUAL "ALL")
      # Code for each generation runs on its later members; the newest one's also as text, for those to come.
      set(CMAKE_CUDA_ARCHITECTURES "")
      foreach(architecture ${CMAKE_CUDA_ARCHITECTURES_ALL_MAJOR})
        string(REGEX MATCH "^[0-9]+" number "${architecture}")
        if(number GREATER_EQUAL TIERING_OLDEST_GPU)
          list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture})
        endif()
      endforeach()
    endif()
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL TIERING_OLDEST_CUDA)
      find_package(CUDAToolkit REQUIRED)
      set(TIERING_CUDA_RUNTIME CUDA::cudart_static)
      if(NOT TARGET CUDA::cudart_static)
        set(TIERING_CUDA_RUNTIME CUDA::cudart)
        set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
        # CMake finds no folders of its own for nvcc: it looks for them by linking the static one.
        set(CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
        link_directories(${CUDAToolkit_LIBRARY_DIR})
        set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # the module finds it where it was linked
      endif()
      set(CMAKE_CUDA_STANDARD 20)
      set(CMAKE_CUDA_STANDARD_REQUIRED ON)
      set(TIERING_HAVE_CUDA 1)
    endif()
  endif()
  if(NOT TIERING_HAVE_CUDA AND TIERING_CUDA_WANTED)
    message(FATAL_ERROR "TIERING_CUDA=${TIERING_CUDA}, but no nvcc of CUDA ${TIERING_OLDEST_CUDA} or newer was found that "
                        "works (found: '${CMAKE_CUDA_COMPILER}' ${CMAKE_CUDA_COMPILER_VERSION}): put one on PATH or set "
                        "CMAKE_CUDA_COMPILER")
  endif()
  message(STATUS "tiering: CUDA part: ${TIERING_HAVE_CUDA} (nvcc: '${CMAKE_CUDA_COMPILER}' "
                 "${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES})")
endif()
