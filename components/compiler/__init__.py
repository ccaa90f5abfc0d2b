"""How a module is compiled and what comes out: the only place that knows clang's command lines."""
