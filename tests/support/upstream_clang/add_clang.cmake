# The target `upstream`: a clang of LLVM's own development mode. LLVM's files are as they are, compiled with
# LLVM_HAVE_TFLITE, none of our advisors is in it, and it runs model.tflite by the TensorFlow Lite in TensorFlow's wheel.
# Included by components/toolchain/cmake/CMakeLists.txt through CMAKE_PROJECT_mlgo-clang_INCLUDE.
#
# Variables:
#   DEVELOPMENT_SOURCE    LLVM's source with the files that the project itself does not need
#   TENSORFLOW_LIBRARIES  directory of libtensorflow_cc.so.2
set(here ${CMAKE_CURRENT_LIST_DIR})
cmake_language(DEFER CALL add_upstream_clang)

macro(add_upstream_clang)
  # TFLiteUtils.cpp includes six headers of TensorFlow Lite; ours stands for each of them.
  foreach(header interpreter kernels/register model model_builder op_resolver logger)
    file(CONFIGURE OUTPUT ${config}/tflite/tensorflow/lite/${header}.h CONTENT "#include \"TensorFlowLite.h\"\n")
  endforeach()
  # Objects of unchanged files of LLVM that our training clang is linked from, too.
  set(shared "$<TARGET_OBJECTS:training>;$<TARGET_OBJECTS:advisor>")
  set(unchanged "/(ModelUnderTrainingRunner|InlineAdvisor|MLInlineAdvisor|RegAllocEvictionAdvisor)[.]cpp")
  describe(upstream "a clang of LLVM's development mode, for tests" description)
  add_clang(upstream ${description} "$<FILTER:${shared},INCLUDE,${unchanged}>"
            ${DEVELOPMENT_SOURCE}/llvm/lib/Analysis/DevelopmentModeInlineAdvisor.cpp
            ${DEVELOPMENT_SOURCE}/llvm/lib/Analysis/TFLiteUtils.cpp ${codegen}/MLRegAllocEvictAdvisor.cpp
            ${here}/TensorFlowLite.cpp)
  target_compile_definitions(upstream PRIVATE LLVM_HAVE_TFLITE MODEL_RUNNER="$<TARGET_FILE:model-runner>")
  target_include_directories(upstream PRIVATE ${codegen} ${config}/tflite ${here})
  # A library of its own, loaded apart, because TensorFlow's library has another LLVM in it.
  add_library(model-runner SHARED ${here}/ModelRunner.cpp)
  target_link_libraries(model-runner PRIVATE ${TENSORFLOW_LIBRARIES}/libtensorflow_cc.so.2)
  set_target_properties(model-runner PROPERTIES POSITION_INDEPENDENT_CODE ON BUILD_RPATH ${TENSORFLOW_LIBRARIES})
  add_dependencies(upstream model-runner)
endmacro()
