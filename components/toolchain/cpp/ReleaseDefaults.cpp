#include "ReleaseDefaults.h"

bool mlgo::hasReleaseDefaults() { return true; }
