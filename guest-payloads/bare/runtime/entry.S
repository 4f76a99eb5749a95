// SPDX-License-Identifier: Apache-2.0
//
// Every vCPU enters at payload_entry at once: rdi = its index, rsi = the PayloadInfo, rsp = the top of its own stack,
// 64-bit mode, interrupts off. Plain instructions only: where KVM interprets guest kernel mode (a paging-based KVM),
// its emulator must know each of them.

        .section .text.entry, "ax"
        .globl payload_entry
payload_entry:
        and     $-16, %rsp
        xor     %ebp, %ebp
        call    payload_start
1:      pause
        jmp     1b

        .macro  save_registers
        push    %rax
        push    %rcx
        push    %rdx
        push    %rsi
        push    %rdi
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        .endm

        .macro  restore_registers
        pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rdi
        pop     %rsi
        pop     %rdx
        pop     %rcx
        pop     %rax
        .endm

        .text
// One entry of 16 bytes per exception vector; those without an error code push a zero, so that all frames are alike
// (SDM vol. 3, table 6-1).
        .balign 16
        .globl exception_stubs
exception_stubs:
        .set    vector, 0
        .rept   32
        .balign 16
        .if     !((vector == 8) || (vector >= 10 && vector <= 14) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30))
        push    $0
        .endif
        push    $vector
        jmp     exception_common
        .set    vector, vector + 1
        .endr

// The CPU aligned the stack to 16 before its five words; with two more and nine registers the call is aligned again.
exception_common:
        save_registers
        mov     %rsp, %rdi
        cld
        call    payload_exception
        restore_registers
        add     $16, %rsp
        iretq

// The same frame as an exception's, with no error code.
        .macro  interrupt_stub name, vector
        .globl  \name
\name:
        push    $0
        push    $\vector
        jmp     interrupt_common
        .endm

interrupt_common:
        save_registers
        mov     %rsp, %rdi
        cld
        call    payload_interrupt
        restore_registers
        add     $16, %rsp
        iretq

        interrupt_stub interrupt_timer, 0xec
        interrupt_stub interrupt_call_function_single, 0xfb
        interrupt_stub interrupt_call_function, 0xfc
        interrupt_stub interrupt_reschedule, 0xfd

// void payload_halt(): STI takes effect after the next instruction (SDM vol. 2, STI), so that an interrupt that is pending
// is delivered in the halted state, never between the two, and cannot be lost. payload_interrupt knows both labels.
        .globl  payload_halt
        .globl  payload_halt_instruction
        .globl  payload_halt_end
payload_halt:
        sti
payload_halt_instruction:
        hlt
payload_halt_end:
        ret

// A spurious interrupt has no EOI (SDM vol. 3, 11.9).
        .globl  interrupt_spurious
interrupt_spurious:
        iretq

        .section .note.GNU-stack, "", @progbits
