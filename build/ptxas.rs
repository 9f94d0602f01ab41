//! Reads what `ptxas -v` reports: registers, spills, stack and static shared memory of each kernel, and the warnings
//! that must not pass.

use serde::{Deserialize, Serialize};

/// One kernel on one architecture, as the assembler laid it out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub entry: String,
    pub arch: String,
    pub registers: u32,
    pub spill_stores: u32,
    pub spill_loads: u32,
    pub stack: u32,
    pub shared: u32,
}

/// Warnings that mean a Hopper kernel lost its point: a `setmaxnreg` ignored (C7508), `wgmma` serialised (C7510 to C7515).
const FATAL: [&str; 7] = ["C7508", "C7510", "C7511", "C7512", "C7513", "C7514", "C7515"];

/// The first line with a warning that fails the build.
pub fn fatal(log: &str) -> Option<&str> {
    log.lines().find(|line| FATAL.iter().any(|code| line.contains(&format!("({code})"))))
}

/// Other warnings, to be passed on.
pub fn warnings(log: &str) -> Vec<String> {
    log.lines().filter(|l| l.contains("warning") && !l.starts_with("Remark")).map(|l| l.trim().to_string()).collect()
}

/// Kernels in the order of the log.
///
/// Device functions that were not inlined have `Function properties` too; only what stands between a kernel's
/// `Compiling entry function` and its `Used … registers` is the kernel's own.
pub fn parse(log: &str) -> Vec<Resources> {
    let mut all: Vec<Resources> = Vec::new();
    let (mut open, mut own) = (false, false);
    for line in log.lines() {
        if let Some(rest) = line.split_once("Compiling entry function '").map(|p| p.1) {
            let mut quoted = rest.split('\'');
            let entry = quoted.next().unwrap_or_default().to_string();
            let arch = quoted.nth(1).unwrap_or_default().to_string();
            all.push(Resources { entry, arch, ..Resources::default() });
            (open, own) = (true, false);
            continue;
        }
        let Some(last) = all.last_mut().filter(|_| open) else { continue };
        if let Some(name) = line.split_once("Function properties for ").map(|p| p.1) {
            own = name.trim() == last.entry;
        } else if line.contains("bytes stack frame") && own {
            last.stack = before(line, " bytes stack frame");
            last.spill_stores = before(line, " bytes spill stores");
            last.spill_loads = before(line, " bytes spill loads");
        } else if line.contains("Used ") && line.contains(" registers") {
            last.registers = before(line, " registers");
            last.shared = before(line, " bytes smem");
            open = false;
        }
    }
    all
}

/// The number just before `words`, or 0.
fn before(line: &str, words: &str) -> u32 {
    let Some((head, _)) = line.split_once(words) else { return 0 };
    let digits = head.rfind(|c: char| !c.is_ascii_digit()).map_or(head, |i| &head[i + 1..]);
    digits.parse().unwrap_or(0)
}
