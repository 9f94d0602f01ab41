//! `workbench predict sweep`: many predictions at once, sealed; `workbench predict check`: what a later run made of them.

use crate::cli::table::{Sheet, emit, percent, us};
use crate::cli::{OutputArgs, write_output};
use crate::error::{Error, Result};
use crate::explain::sealed::{self, Outcome, Score, Sealed};
use crate::launch::image::TOOLCHAIN;
use crate::op::Chip;
use crate::roofline::{Calibration, Ceilings};
use crate::run::grid;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// List of shapes: decode, calibration, or a file of lines `OP SHAPE`
    #[arg(default_value = "decode")]
    list: String,
    /// Write the predictions, sealed with a hash, to FILE
    #[arg(long, value_name = "FILE")]
    seal: Option<PathBuf>,
    /// Fits to predict from (the JSON of `predict calibrate`) in place of the built-in ones
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// File that `predict sweep --seal` wrote
    sealed: PathBuf,
    /// JSON lines of `bench`, begun later
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Largest median miss, as a share of the measured time
    #[arg(long, value_name = "SHARE", default_value_t = 0.10)]
    median: f64,
    /// Largest single miss
    #[arg(long, value_name = "SHARE", default_value_t = 0.30)]
    worst: f64,
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::usage(format!("cannot read {}: {e}", path.display())))
}

pub fn run(args: &Args, chip: &Chip, ceilings: &Ceilings, out: &OutputArgs) -> Result<()> {
    let calibration = match &args.calibration {
        None => Calibration::default(),
        Some(file) => serde_json::from_str(&read(file)?).map_err(|e| {
            Error::usage(format!("{} holds no fits: {e}", file.display()))
                .try_next("`workbench predict calibrate … --json FILE` writes them")
        })?,
    };
    let cases = grid::find(&args.list)?;
    let built = (TOOLCHAIN.commit, TOOLCHAIN.dirty);
    let sealed = sealed::predict(&args.list, &cases, chip, ceilings, &calibration, built)?;
    if let Some(file) = &args.seal {
        write_output(file, &sealed.text()?)?;
    }
    let heads = ["kernel", "shape", ">floor µs", ">predicted µs", ">80 %"];
    let mut sheet = Sheet::new(format!("{} shapes on {}", sealed.rows.len(), ceilings.gpu), &heads);
    for r in &sealed.rows {
        sheet.row([
            format!("{}/{}", r.op, r.variant),
            r.shape.clone(),
            us(r.floor_ns),
            us(r.predicted_ns),
            format!("{} to {}", us(r.low_ns), us(r.high_ns)),
        ]);
    }
    let mut tail = format!("fits: {}\n", sealed.head.calibration);
    if let Some(file) = &args.seal {
        let at = file.display();
        tail += &format!(
            "sealed in {at}; now: workbench bench --sweep {} --json RUN, then workbench predict check {at} RUN\n",
            args.list
        );
    }
    emit(out, &[sheet], &tail, &json!({"schema": 1, "head": sealed.head, "rows": sealed.rows}))
}

pub fn check(args: &CheckArgs, out: &OutputArgs) -> Result<()> {
    let sealed = Sealed::parse(&args.sealed.display().to_string(), &read(&args.sealed)?)?;
    let runs = args.runs.iter().map(|p| Ok((p.display().to_string(), read(p)?))).collect::<Result<Vec<_>>>()?;
    let checked = sealed::check(&sealed, &runs)?;
    let all = sealed::score(&checked.outcomes).ok_or_else(|| {
        Error::incomplete(format!("no sealed shape of {} was measured", args.sealed.display()))
            .try_next(format!("workbench bench --sweep {} --json RUN", sealed.head.grid))
    })?;

    let mut table = Sheet::new("Misses by op", &["op", ">shapes", ">median", ">worst", ">in their 80 %", "worst shape"]);
    let mut by_op = serde_json::Map::new();
    let mut line = |name: &str, s: Score, worst: &Outcome| {
        let shape = format!("{}/{} {}: {} µs, predicted {}", worst.row.op, worst.row.variant, worst.row.shape, us(worst.ns), us(worst.row.predicted_ns));
        table.row([name.into(), s.n.to_string(), percent(s.median), percent(s.worst), percent(s.hits), shape]);
    };
    let worst = |of: &[&Outcome]| of.iter().max_by(|a, b| a.miss.total_cmp(&b.miss)).map(|o| (*o).clone());
    let mut ops: Vec<&str> = checked.outcomes.iter().map(|o| o.row.op.as_str()).collect();
    ops.sort_unstable();
    ops.dedup();
    for op in ops {
        let of: Vec<&Outcome> = checked.outcomes.iter().filter(|o| o.row.op == op).collect();
        if let (Some(s), Some(w)) = (sealed::score(of.iter().copied()), worst(&of)) {
            line(op, s, &w);
            by_op.insert(op.into(), json!(s));
        }
    }
    if let Some(w) = worst(&checked.outcomes.iter().collect::<Vec<_>>()) {
        line("all", all, &w);
    }
    let others = checked.outcomes.iter().filter(|o| o.ran.is_some()).count();
    let mut tail = format!(
        "sealed {} at commit {}, {} of {} shapes measured\n",
        sealed.head.at,
        sealed.head.commit.as_deref().map_or("none", |c| &c[..c.len().min(10)]),
        checked.outcomes.len(),
        sealed.rows.len()
    );
    if others > 0 {
        tail += &format!("{others} ran another variant than the one predicted\n");
    }
    let json = json!({"schema": 1, "head": sealed.head, "score": all, "by_op": by_op, "outcomes": checked.outcomes, "unmeasured": checked.unmeasured});
    emit(out, &[table], &tail, &json)?;
    if all.median > args.median || all.worst > args.worst {
        return Err(Error::check(format!(
            "predictions miss by {} at the median and {} at worst; {} and {} are allowed",
            percent(all.median),
            percent(all.worst),
            percent(args.median),
            percent(args.worst)
        )));
    }
    match checked.unmeasured.first() {
        None => Ok(()),
        Some(first) => {
            Err(Error::incomplete(format!("{} sealed shapes were not measured: {first} …", checked.unmeasured.len())))
        }
    }
}
