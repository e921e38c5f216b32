/* Common tails of the generated operator stubs (System V x86-64).
 *
 * A stub puts the address of its operator's name in %r11 and jumps here. The
 * prepare tail lays the six integer argument registers and the eight vector
 * argument registers out in memory, so that the runtime can walk an argument
 * list whose shape it does not know:
 *
 *   int cannSimOpPrepare(const char *name, const uint64_t ints[6],
 *                        const double floats[8], const uint64_t *stack)
 *
 * `stack` points at the first argument passed in memory.
 */
    .text

    .hidden cann_sim_opapi_prepare
    .globl  cann_sim_opapi_prepare
    .type   cann_sim_opapi_prepare, @function
cann_sim_opapi_prepare:
    .cfi_startproc
    pushq   %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq    %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq    $112, %rsp
    movq    %rdi,   0(%rsp)
    movq    %rsi,   8(%rsp)
    movq    %rdx,  16(%rsp)
    movq    %rcx,  24(%rsp)
    movq    %r8,   32(%rsp)
    movq    %r9,   40(%rsp)
    movsd   %xmm0, 48(%rsp)
    movsd   %xmm1, 56(%rsp)
    movsd   %xmm2, 64(%rsp)
    movsd   %xmm3, 72(%rsp)
    movsd   %xmm4, 80(%rsp)
    movsd   %xmm5, 88(%rsp)
    movsd   %xmm6, 96(%rsp)
    movsd   %xmm7, 104(%rsp)
    movq    %r11, %rdi
    movq    %rsp, %rsi
    leaq    48(%rsp), %rdx
    leaq    16(%rbp), %rcx
    call    cannSimOpPrepare@PLT
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size   cann_sim_opapi_prepare, .-cann_sim_opapi_prepare

/*   int cannSimOpLaunch(void *workspace, uint64_t size, void *executor,
 *                       void *stream, const char *name)
 */
    .hidden cann_sim_opapi_launch
    .globl  cann_sim_opapi_launch
    .type   cann_sim_opapi_launch, @function
cann_sim_opapi_launch:
    .cfi_startproc
    movq    %r11, %r8
    jmp     cannSimOpLaunch@PLT
    .cfi_endproc
    .size   cann_sim_opapi_launch, .-cann_sim_opapi_launch

    .section .note.GNU-stack,"",@progbits
