//! The machine: system, driver, GPU, and whether the kernels in this program fit it.

use super::Check;
use crate::kernels;
use crate::launch::image::{IMAGES, Image, TOOLCHAIN};
use crate::launch::{Clocks, Device, device, driver, nvrtc};
use crate::roofline::machine::{DATASHEETS, Mismatch, datasheet};
use nvml_wrapper::Nvml;
use std::ffi::CStr;

/// The checks, and the device if it can be opened.
pub fn checks(gpu: u32) -> (Vec<Check>, Option<Device>) {
    let mut checks = vec![system()];
    checks.extend(wsl());
    let device = match driver::load().and_then(|_| Device::open(gpu)) {
        Ok(device) => {
            checks.extend(opened(&device));
            Some(device)
        }
        Err(e) => {
            let fix = "install NVIDIA driver 580 or newer, and see that `nvidia-smi` lists the card (in a container: --gpus all)";
            checks.push(Check::fail("driver", e.what, fix));
            None
        }
    };
    checks.push(toolchain());
    checks.push(images(device.as_ref()));
    (checks, device)
}

fn system() -> Check {
    // SAFETY: returns a constant string.
    let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Check::ok("system", format!("Linux {}, glibc {glibc}, workbench {}", kernel.trim(), env!("CARGO_PKG_VERSION")))
}

/// Under WSL the driver is Windows's, and CUPTI is limited.
pub fn is_wsl() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.to_lowercase().contains("microsoft") || std::path::Path::new("/dev/dxg").exists()
}

fn wsl() -> Option<Check> {
    is_wsl().then(|| {
        Check::warn(
            "wsl",
            "this is the Windows Subsystem for Linux: tracing and counters depend on the Windows driver",
            "measure on native Linux; or allow counters in the NVIDIA control panel and update the Windows driver",
        )
    })
}

fn opened(device: &Device) -> Vec<Check> {
    let info = device.info();
    let clocks = Clocks::new(info);
    let level = driver::version_text(device.driver());
    let version = clocks.driver_version().unwrap_or_else(|| "version unknown (no NVML)".into());
    let gpus = device::list().unwrap_or_default();
    let mut checks = vec![
        Check::ok("driver", format!("{version}, CUDA {level}")),
        Check::ok(
            "gpu",
            format!(
                "{} of {}: {}, …{}, compute capability {}.{}, {} SMs, {:.1} GiB",
                info.index,
                gpus.len(),
                info.name,
                info.uuid_tail(),
                info.chip.sm / 10,
                info.chip.sm % 10,
                info.chip.sms,
                info.memory_bytes as f64 / (1u64 << 30) as f64
            ),
        ),
    ];
    checks.push(table(info));
    checks.push(clocks_now(&clocks));
    checks.extend(nvml(&info.uuid));
    checks
}

/// The card beside its line of the machine table: predictions for others' cards stand on such lines.
fn table(info: &device::Info) -> Check {
    let Some(sheet) = datasheet(&info.name) else {
        return Check::warn(
            "machine table",
            format!("{} is not among the {} cards of the table", info.name, DATASHEETS.len()),
            "`workbench predict step --gpu FILE.json` takes a machine of your own",
        );
    };
    let found = sheet.against(&info.chip, info.memory_bytes);
    if found.is_empty() {
        let what = "capability, multiprocessors, L2, shared memory and memory are the table's";
        return Check::ok("machine table", format!("`{}`: {what}", sheet.key));
    }
    let line = |m: &Mismatch| format!("{} is {} here, {} in the table ({})", m.what, m.device, m.table, m.source);
    Check::warn(
        "machine table",
        format!("`{}`: {}", sheet.key, found.iter().map(line).collect::<Vec<_>>().join("; ")),
        "the device is right: predict with a machine of your own (--gpu FILE.json), or look for MIG or a virtual GPU",
    )
}

fn clocks_now(clocks: &Clocks) -> Check {
    let now = clocks.read();
    let text = |v: Option<String>| v.unwrap_or_else(|| "?".into());
    let detail = format!(
        "SM {} of {} MHz, {} W of {} W, {} °C{}",
        text(now.sm_mhz.map(|v| v.to_string())),
        text(clocks.max_sm_mhz().map(|v| v.to_string())),
        text(now.power_w.map(|v| format!("{v:.0}"))),
        text(clocks.power_limit_w().map(|v| format!("{v:.0}"))),
        text(now.temperature_c.map(|v| v.to_string())),
        if now.throttle.is_empty() { String::new() } else { format!(", held down by: {}", now.throttle.join(", ")) }
    );
    match now.slowed_by_heat() {
        true => Check::warn("clocks", detail, "let the card cool down, and look at its cooling and power supply"),
        false => Check::ok("clocks", detail),
    }
}

/// What only NVML knows: MIG, and who else is on the card.
fn nvml(uuid: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    let Ok(nvml) = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().or_else(|_| Nvml::init()) else {
        return vec![Check::warn(
            "nvml",
            "NVML cannot be loaded: no clocks, power or temperature",
            "install libnvidia-ml",
        )];
    };
    let Ok(device) = nvml.device_by_uuid(uuid) else { return checks };
    // 1 is NVML_DEVICE_MIG_ENABLE.
    if device.mig_mode().is_ok_and(|m| m.current == 1) {
        checks.push(Check::warn(
            "mig",
            "the card is split by MIG: ceilings are a slice's, and tracing may not be supported",
            "measure on a whole card",
        ));
    }
    let own = std::process::id();
    let others = device.running_compute_processes().map_or(0, |all| all.iter().filter(|p| p.pid != own).count());
    checks.push(match others {
        0 => Check::ok("alone", "no other process computes on this GPU"),
        n => Check::warn(
            "alone",
            format!("{n} other processes compute on this GPU: times will be theirs too"),
            "stop them, or choose another card with --gpu",
        ),
    });
    checks
}

fn toolchain() -> Check {
    let archs = TOOLCHAIN.archs.join(", ");
    match TOOLCHAIN.nvcc {
        Some(nvcc) => {
            let origin = TOOLCHAIN.origin.map_or(String::new(), |o| format!(" ({o})"));
            Check::ok("nvcc", format!("kernels were built by nvcc {nvcc}{origin} for {archs}"))
        }
        None if nvrtc::present() => Check::ok(
            "nvcc",
            format!(
                "built without nvcc; kernels compile at run time by NVRTC {}",
                nvrtc::version().unwrap_or_else(|| "of unknown version".into())
            ),
        ),
        None => Check::fail(
            "nvcc",
            "built without nvcc, and NVRTC cannot be loaded: only hand-written PTX can run",
            "`cargo xtask toolchain`, then build again; or install NVRTC 13",
        ),
    }
}

/// Whether each variant's image has machine code for the device, or PTX that the driver can compile.
fn images(device: Option<&Device>) -> Check {
    let ops = kernels::OPS.len();
    let built = IMAGES.iter().filter(|i| i.compiled()).count();
    let all = format!("{} variants of {ops} ops, {built} with a compiled image", IMAGES.len());
    let Some(device) = device else { return Check::ok("images", all) };
    let sm = device.info().chip.sm;
    let native = |i: &&Image| {
        i.resources.iter().any(|r| {
            let arch = r.arch.trim_start_matches("sm_").trim_end_matches(|c: char| c.is_ascii_alphabetic());
            // Machine code runs on a later minor version of the same major one.
            arch.parse::<u32>().is_ok_and(|a| a / 10 == sm / 10 && a <= sm)
        })
    };
    let fitting = IMAGES.iter().filter(native).count();
    let text = format!("{all}; {fitting} with machine code for {}.{}", sm / 10, sm % 10);
    match IMAGES.len() - fitting {
        0 => Check::ok("images", text),
        n if TOOLCHAIN.nvcc.is_some() => Check::warn(
            "images",
            format!("{text}, {n} go through the driver's compiler or cannot run here"),
            "build with nvcc for this architecture (`workbench list` shows the variants' own needs)",
        ),
        _ => Check::ok("images", text),
    }
}
