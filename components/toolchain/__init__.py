"""Step: a clang that logs decisions and loads a policy (training), or one that carries a policy (release)."""
