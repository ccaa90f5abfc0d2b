"""The form of a policy that compilers load or embed: generated C++, and its shared object."""
