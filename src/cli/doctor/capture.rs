//! Tracing and counters: CUPTI found, fit for the driver, and really tracing; who else may be in the way.

use super::Check;
use super::machine::is_wsl;
use crate::launch::{Device, driver};
use crate::profile::{foreign, probe};
use cupti_sys::Version;
use std::path::Path;

pub fn checks(device: Option<&Device>) -> Vec<Check> {
    let mut checks = vec![cupti(device)];
    checks.push(other_profiler());
    if let Some(device) = device {
        checks.push(tracing(device));
    }
    checks.push(injection());
    checks.push(counters());
    checks.extend(dcgm());
    checks
}

fn cupti(device: Option<&Device>) -> Check {
    let lib = match cupti_sys::load() {
        Ok(lib) => lib,
        Err(e) => {
            let folders: Vec<_> = e.folders.iter().map(|f| f.display().to_string()).collect();
            let problem = cupti_collect::Problem::from(e);
            return Check::fail("cupti", format!("{problem} (folders: {})", folders.join(", ")), problem.fix());
        }
    };
    let found = format!("{} ({}) at {}", lib.version, lib.api_version, lib.path.display());
    let Some(level) = device.map(|d| d.driver() as u32) else { return Check::ok("cupti", found) };
    let cuda = Version::new(level / 1000, level / 10 % 100);
    let advice = format!("WORKBENCH_CUPTI=/path/to/libcupti of CUDA {cuda}");
    match () {
        () if lib.version.major > cuda.major => {
            Check::warn("cupti", format!("{found} is newer than the driver's CUDA {cuda}"), advice)
        }
        () if lib.version < cuda => Check::warn(
            "cupti",
            format!("{found} is older than the driver's CUDA {cuda}: new kinds of work may be missing in traces"),
            advice,
        ),
        () => Check::ok("cupti", found),
    }
}

/// Traces the probe kernel; the one check that cannot be fooled.
fn tracing(device: &Device) -> Check {
    let probe = match probe::run(device) {
        Ok(probe) => probe,
        Err(e) => return Check::error("tracing", &e),
    };
    let [before, during, after] = probe.launch_ns;
    let seen = format!(
        "{} stream and {} graph kernels traced, {:.1} to {:.1} µs each, {} calls; a launch takes {before:.0} ns, \
         {during:.0} ns while tracing, {after:.0} ns afterwards",
        probe.stream_kernels,
        probe.graph_kernels,
        probe.shortest_ns as f64 / 1e3,
        probe.longest_ns as f64 / 1e3,
        probe.calls
    );
    let faults = probe.faults();
    let missing = probe.stream_kernels + probe.graph_kernels == 0;
    match () {
        () if missing && is_wsl() => Check::fail("tracing", "no kernel was recorded (WSL)", "measure on native Linux"),
        () if missing => Check::fail(
            "tracing",
            "the session opened, but no kernel was recorded",
            "look for MIG, a vGPU without profiling, or an injected tool; then another CUPTI (WORKBENCH_CUPTI)",
        ),
        () if !faults.is_empty() => Check::warn(
            "tracing",
            format!("{seen}; {}", faults.join("; ")),
            "report this with driver and CUPTI versions",
        ),
        () if after > 1.5 * before => Check::warn(
            "tracing",
            format!("{seen}: launches stay slow after the session"),
            "measure untraced times in a process that has not traced",
        ),
        () => Check::ok("tracing", seen),
    }
}

/// Signs of a tool that has put itself into this process.
fn other_profiler() -> Check {
    let variables = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NVIDIA_PROCESS_INJECTION_CRASH_REPORTING"];
    let set = variables.iter().find(|v| std::env::var_os(v).is_some_and(|v| !v.is_empty()));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let libraries = ["libToolsInjection", "libnsys", "libcuda-injection", "libsanitizer-collection", "libTreeLauncher"];
    let mapped = libraries.iter().find(|l| maps.contains(**l));
    match (set, mapped) {
        (None, None) => Check::ok("other profiler", "none in this process"),
        (set, mapped) => Check::warn(
            "other profiler",
            format!(
                "a tool has been injected ({})",
                [set, mapped].into_iter().flatten().copied().collect::<Vec<_>>().join(", ")
            ),
            "run without nsys, ncu or compute-sanitizer to trace with the workbench",
        ),
    }
}

fn injection() -> Check {
    match foreign::library() {
        Ok(path) => Check::ok("injection", format!("`workbench trace` will use {}", path.display())),
        Err(e) => {
            Check::warn("injection", format!("`workbench trace` cannot work: {}", e.what), e.next.unwrap_or_default())
        }
    }
}

/// Hardware counters are the driver's to allow; activity tracing needs no permission.
fn counters() -> Check {
    let params = match std::fs::read_to_string("/proc/driver/nvidia/params") {
        Ok(text) => text,
        Err(_) if driver::load().is_err() => return Check::ok("counters", "not checked: no driver"),
        Err(e) => {
            return Check::warn(
                "counters",
                format!("the driver's parameters cannot be read ({e})"),
                "in a container, mount /proc/driver/nvidia or ask on the host",
            );
        }
    };
    let value = params.lines().find_map(|l| l.strip_prefix("RmProfilingAdminOnly:")).map(str::trim);
    match value {
        Some("0") => Check::ok("counters", "allowed for every user (RmProfilingAdminOnly 0)"),
        Some(_) if may_administer() => Check::ok("counters", "allowed for administrators, and this process is one"),
        Some(_) => Check::warn(
            "counters",
            "hardware counters are for administrators only (RmProfilingAdminOnly 1); tracing works all the same",
            cupti_collect::Problem::NotPermitted.fix(),
        ),
        None => {
            Check::warn("counters", "the driver does not say whether counters are allowed", "try `ncu`, or run as root")
        }
    }
}

/// CAP_SYS_ADMIN (bit 21) or, on newer drivers, CAP_PERFMON (bit 38) in the effective set.
fn may_administer() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|l| l.strip_prefix("CapEff:")).and_then(|m| u64::from_str_radix(m.trim(), 16).ok());
    mask.is_some_and(|m| m & (1 << 21 | 1 << 38) != 0)
}

/// DCGM's host engine samples the counters and keeps them from others.
fn dcgm() -> Option<Check> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let name = |p: &Path| std::fs::read_to_string(p.join("comm")).unwrap_or_default().trim().to_string();
    let found = processes.map(|e| name(&e.path())).find(|n| n.starts_with("nv-hostengine") || n.starts_with("dcgm"))?;
    Some(Check::warn(
        "dcgm",
        format!("{found} runs: it may hold the hardware counters (tracing is not affected)"),
        "`dcgmi profile --pause` while counters are read, `dcgmi profile --resume` after",
    ))
}
