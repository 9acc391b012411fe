"""What instructions and NVIDIA's library compute, as device functions in the kernel language."""
