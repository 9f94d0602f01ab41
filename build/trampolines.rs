//! A `libcuda.a` for the `cust` crate, which links the driver: each function opens the real driver at its first call.
//!
//! Linked against `libcuda.so` itself, a program does not even start on a machine without a driver. Linked against this
//! archive it does, and every call there returns CUDA_ERROR_NO_DEVICE. `cuda_symbols.txt` lists the functions that
//! cust 0.3.2 declares; the tail jump keeps arguments as they are, so no signature is needed.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const RESOLVER: &str = r#"
#include <dlfcn.h>
#include <stddef.h>
extern const char *const wb_cuda_names[] __attribute__((visibility("hidden")));
extern void *wb_cuda_slots[] __attribute__((visibility("hidden")));
static int no_device(void) { return 100; }
__attribute__((visibility("hidden"))) void *wb_cuda_resolve(size_t i) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, wb_cuda_names[i]) : NULL;
    return wb_cuda_slots[i] = found ? found : (void *)no_device;
}
"#;

/// Makes the archive in `out` and tells cargo where it is. x86-64 only, as the text below is its assembly.
pub fn build(symbols: &str, out: &Path) -> Result<(), String> {
    let names: Vec<&str> = symbols.lines().filter(|l| !l.is_empty()).collect();
    let written = |name: &str, text: &str| std::fs::write(out.join(name), text).map_err(|e| e.to_string());
    written("resolve.c", RESOLVER)?;
    written("trampolines.S", &assembly(&names))?;
    run(out, "cc", &["-O1", "-fPIC", "-c", "resolve.c", "-o", "resolve.o"])?;
    run(out, "cc", &["-fPIC", "-c", "trampolines.S", "-o", "trampolines.o"])?;
    let _ = std::fs::remove_file(out.join("libcuda.a"));
    run(out, "ar", &["crs", "libcuda.a", "resolve.o", "trampolines.o"])?;
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=dylib=dl");
    Ok(())
}

fn run(folder: &Path, program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .output()
        .map_err(|e| format!("the feature `cust` needs `{program}`: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)))
}

fn assembly(names: &[&str]) -> String {
    let mut text = String::from("    .text\n");
    for (i, name) in names.iter().enumerate() {
        let _ = write!(
            text,
            "    .globl {name}\n    .type {name}, @function\n{name}:\n    movq wb_cuda_slots+{offset}(%rip), %r11\n    \
             testq %r11, %r11\n    je 1f\n    jmp *%r11\n1:  pushq ${i}\n    jmp wb_cuda_enter\n",
            offset = 8 * i,
        );
    }
    // Entered with the index on top of the return address: keeps every argument register, asks for the address, goes on.
    text += "wb_cuda_enter:\n";
    let integers = ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax"];
    for register in integers {
        let _ = writeln!(text, "    pushq %{register}");
    }
    text += "    subq $128, %rsp\n";
    for i in 0..8 {
        let _ = writeln!(text, "    movups %xmm{i}, {}(%rsp)", 16 * i);
    }
    // 8 (return) + 8 (index) + 56 + 128 = 200 bytes below a call's aligned stack: 8 more make it a multiple of 16.
    text += "    movq 184(%rsp), %rdi\n    subq $8, %rsp\n    call wb_cuda_resolve\n    addq $8, %rsp\n    movq %rax, %r11\n";
    for i in 0..8 {
        let _ = writeln!(text, "    movups {}(%rsp), %xmm{i}", 16 * i);
    }
    text += "    addq $128, %rsp\n";
    for register in integers.iter().rev() {
        let _ = writeln!(text, "    popq %{register}");
    }
    text += "    addq $8, %rsp\n    jmp *%r11\n";
    let _ = write!(
        text,
        "    .bss\n    .hidden wb_cuda_slots\n    .globl wb_cuda_slots\n    .balign 8\nwb_cuda_slots: .zero {}\n",
        8 * names.len()
    );
    text += "    .section .data.rel.ro, \"aw\"\n    .hidden wb_cuda_names\n    .globl wb_cuda_names\n    .balign 8\nwb_cuda_names:\n";
    for i in 0..names.len() {
        let _ = writeln!(text, "    .quad .Lname{i}");
    }
    text += "    .section .rodata\n";
    for (i, name) in names.iter().enumerate() {
        let _ = writeln!(text, ".Lname{i}: .asciz \"{name}\"");
    }
    text + "    .section .note.GNU-stack, \"\", @progbits\n"
}
