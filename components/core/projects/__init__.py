"""Real C and C++ projects: where their source comes from and how any clang builds them.

The corpus step builds them with embedded bitcode; the evaluation step builds held-out ones whole. Start with
`recipe.load_recipes`, `source.fetch_recipe` and `build.build_project`.
"""
