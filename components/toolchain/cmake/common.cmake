# What the clangs and the plugin have in common: language, warnings, ccache, sources, and how a policy is embedded.
# Included after find_package(LLVM).
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
find_program(CCACHE ccache)
set(MLGO_CCACHE_DIR "" CACHE PATH "directory of ccache; its own default if empty")
if(CCACHE)
  # Only messages depend on the locale.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_BINARY_DIR} CCACHE_SLOPPINESS=locale ${CCACHE})
  if(MLGO_CCACHE_DIR)
    list(INSERT CMAKE_CXX_COMPILER_LAUNCHER 1 CCACHE_DIR=${MLGO_CCACHE_DIR})
  endif()
endif()

set(ours ${CMAKE_CURRENT_LIST_DIR}/../cpp)
include_directories(BEFORE ${ours})

# Sources of the clangs and of the plugin: the advisor that computes features, and what a training one adds.
set(features ${ours}/inlining/features)
set(feature_advisor ${ours}/inlining/InlineFeatureAdvisor.cpp ${ours}/inlining/HeuristicAdvisor.cpp
    ${features}/CallsiteCosts.cpp ${features}/FunctionProperties.cpp
    ${features}/ExtendedFeatures.cpp ${features}/TrainedRanges.cpp)
set(training_advisor ${ours}/inlining/InlineTrainingAdvisor.cpp ${ours}/inlining/CallsiteLog.cpp
    ${ours}/decisions/PolicySampling.cpp ${ours}/decisions/ForcedDecisionsFile.cpp ${ours}/policy/NativePolicy.cpp
    ${ours}/policy/PolicyModel.cpp ${ours}/policy/PolicyRunner.cpp)
# Experimental: ml-compiler-opt's trainer writes such models.
option(MLGO_TFLITE "training clangs and plugins load model.tflite" ON)
if(MLGO_TFLITE)
  list(APPEND training_advisor ${ours}/tflite/TFLitePolicy.cpp ${ours}/tflite/Model.cpp ${ours}/tflite/Operators.cpp)
  set_source_files_properties(${ours}/policy/PolicyModel.cpp PROPERTIES COMPILE_DEFINITIONS MLGO_TFLITE)
endif()

separate_arguments(llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
add_compile_options(-fno-exceptions -funwind-tables -Wno-deprecated-declarations
                    $<$<NOT:$<BOOL:${LLVM_ENABLE_RTTI}>>:-fno-rtti>)

# Compiles the native policy in the directory `policy` for `target`, whose sources include it as the class `model`. The
# header has the name that TensorFlow's AOT compiler uses.
function(embed_native_policy target policy model)
  target_sources(${target} PRIVATE ${policy}/policy.cpp)
  set_source_files_properties(${policy}/policy.cpp PROPERTIES
                              COMPILE_OPTIONS "-fno-math-errno;-fno-asynchronous-unwind-tables")
  file(CONFIGURE OUTPUT ${policy}/include/${model}.h CONTENT "#include \"${policy}/policy.h\"\n")
  target_include_directories(${target} PRIVATE ${policy}/include)
endfunction()
