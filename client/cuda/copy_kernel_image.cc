// The assembler brings in the file that QUARRY_COPY_KERNEL_FATBIN names.
#include "client/cuda/copy_kernel_image.h"

__asm__(
    ".pushsection .rodata\n"
    ".balign 16\n"
    ".globl quarry_copy_kernel_image\n"
    ".hidden quarry_copy_kernel_image\n"
    ".type quarry_copy_kernel_image, @object\n"
    "quarry_copy_kernel_image:\n"
    ".incbin \"" QUARRY_COPY_KERNEL_FATBIN
    "\"\n"
    ".size quarry_copy_kernel_image, . - quarry_copy_kernel_image\n"
    ".popsection\n");
