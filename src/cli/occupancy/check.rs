//! The occupancy arithmetic against a driver's answers, asked now or recorded.

use crate::cli::table::{Sheet, emit, grouped};
use crate::cli::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::explain::occupancy::driver::{Answer, THREADS, differing, dynamic_sizes, from_csv, to_csv};
use crate::explain::occupancy::limits;
use crate::launch::image::IMAGES;
use crate::launch::occupancy::{blocks_per_sm, loaded};
use crate::launch::{Clocks, Device, Environment, Modules};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;

/// Differences that are printed.
const SHOWN: usize = 20;

/// Asks a GPU's driver about one kernel of every kind: kernels with the same registers, static shared memory and largest
/// block are the same question.
pub fn ask(gpu: u32, record: Option<&Path>, out: &OutputArgs) -> Result<()> {
    let device = Device::open(gpu)?;
    let modules = Modules::new(&device);
    let environment = Environment::begin(&device, &Clocks::new(device.info()));
    let sm = device.chip().sm;
    let limits = limits(sm)?;
    let (plain, special) = (format!("sm_{sm}"), format!("sm_{sm}a"));
    let mut kinds = BTreeSet::new();
    let mut answers = Vec::new();
    for image in IMAGES.iter().filter(|i| i.compiled()) {
        for r in image.resources.iter().filter(|r| r.arch == plain || r.arch == special) {
            let kernel = loaded(&modules, image.name, r.entry)?;
            if !kinds.insert((kernel.registers, kernel.static_shared, kernel.max_threads)) {
                continue;
            }
            for threads in THREADS.into_iter().filter(|t| *t <= kernel.max_threads) {
                for dynamic in dynamic_sizes(limits, kernel.static_shared) {
                    answers.push(Answer {
                        kernel: format!("{} {}", image.name, r.entry),
                        sm,
                        threads,
                        registers: kernel.registers,
                        static_shared: kernel.static_shared,
                        dynamic_shared: dynamic,
                        blocks: blocks_per_sm(&modules, image.name, r.entry, threads, dynamic)?,
                    });
                }
            }
        }
    }
    if answers.is_empty() {
        return Err(Error::usage(format!("this program has no kernel compiled for sm_{sm}"))
            .try_next("build it where nvcc is, for that architecture"));
    }
    if let Some(file) = record {
        write_output(file, &to_csv(&environment.lines(), &answers)?)?;
    }
    compare(&answers, out)
}

/// Compares answers that were recorded.
pub fn again(file: &Path, out: &OutputArgs) -> Result<()> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| Error::usage(format!("cannot read {name}: {e}")))?;
    compare(&from_csv(&name, &text)?, out)
}

fn compare(answers: &[Answer], out: &OutputArgs) -> Result<()> {
    let wrong = differing(answers)?;
    let kernels: BTreeSet<&str> = answers.iter().map(|a| a.kernel.as_str()).collect();
    let heads = ["kernel", ">threads", ">registers", ">static B", ">dynamic B", ">driver", ">arithmetic"];
    let mut sheet = Sheet::new("Where the arithmetic and the driver differ", &heads);
    for (a, ours) in wrong.iter().take(SHOWN) {
        sheet.row([
            a.kernel.clone(),
            a.threads.to_string(),
            a.registers.to_string(),
            a.static_shared.to_string(),
            a.dynamic_shared.to_string(),
            a.blocks.to_string(),
            ours.to_string(),
        ]);
    }
    let sheets = if sheet.is_empty() { vec![] } else { vec![sheet] };
    let tail = format!(
        "{} configurations of {} kernels asked, {} answered alike\n",
        grouped(answers.len() as u64),
        kernels.len(),
        grouped((answers.len() - wrong.len()) as u64)
    );
    let rows: Vec<_> = wrong.iter().map(|(a, ours)| json!({"answer": a, "arithmetic": ours})).collect();
    emit(out, &sheets, &tail, &json!({"schema": 1, "asked": answers.len(), "kernels": kernels.len(), "differ": rows}))?;
    match wrong.first() {
        None => Ok(()),
        Some((a, ours)) => Err(Error::check(format!(
            "{} of {} configurations differ; of {} with {} threads and {} bytes the driver says {} blocks, the arithmetic {ours}",
            wrong.len(),
            answers.len(),
            a.kernel,
            a.threads,
            a.dynamic_shared,
            a.blocks
        ))),
    }
}
