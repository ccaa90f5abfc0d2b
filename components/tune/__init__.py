"""The tune step: searches for the inlining decisions that make one program smallest, by measured flips."""
