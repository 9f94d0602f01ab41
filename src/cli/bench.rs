//! `workbench bench`: the prediction first, then the measurement beside it.

use super::table::{Sheet, emit, percent, short};
use super::{OutputArgs, write_output};
use crate::error::{Error, Kind, Result};
use crate::launch::{Device, Environment};
use crate::op::{Chip, Shape};
use crate::roofline::{Ceilings, store};
use crate::run::measure::{Bench, Mode, Options};
use crate::run::sweep::{self, Plan, Refusal, Row, Which};
use crate::run::grid::{self, Case};
use crate::run::peers::File;
use crate::run::versus::{self, Contest};
use crate::run::{Gpu, peers, rows};
use crate::units::Bytes;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Op, as `workbench list` names it
    #[arg(required_unless_present_any = ["sweep", "from"])]
    op: Option<String>,
    /// In place of an op: a list of shapes over ops (decode, calibration, or a file of lines `OP SHAPE`)
    #[arg(long, value_name = "LIST", conflicts_with_all = ["op", "shape", "variant", "all_variants"])]
    sweep: Option<String>,
    /// Shape, such as m=1,n=4096,k=4096,dtype=bf16; repeat for several (default: the op's own sweep)
    #[arg(long, value_name = "SHAPE")]
    shape: Vec<String>,
    /// Variant to time, NAME or NAME:CFG; repeat for several, timed in alternation (default: what the op's heuristic picks)
    #[arg(long, value_name = "NAME", conflicts_with = "all_variants")]
    variant: Vec<String>,
    /// Time every variant that can compute the shape
    #[arg(long)]
    all_variants: bool,
    /// How the work is run
    #[arg(long, value_enum, default_value_t = Mode::Graph)]
    mode: Mode,
    /// Recorded rows of other libraries (JSON lines of the scripts in peers/) to set beside ours
    #[arg(long, value_name = "FILE", num_args = 1..)]
    peers: Vec<PathBuf>,
    /// Take our rows from recorded runs instead of measuring: ours beside the peers', without a GPU
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "peers", conflicts_with_all = ["sweep", "shape", "dry_run"])]
    from: Vec<PathBuf>,
    /// Leave out the vendor library's row
    #[arg(long)]
    no_library: bool,
    /// Skip the comparison with the f64 reference
    #[arg(long)]
    no_check: bool,
    /// GPU to run on
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,
    /// Print the predictions and stop
    #[arg(long)]
    dry_run: bool,
    /// Lab note whose sealed prediction this run measures; nothing starts before it is sealed
    #[arg(long, value_name = "ID")]
    note: Option<String>,
    /// Folder of the notes
    #[arg(long, value_name = "DIR", default_value = "lab_notes")]
    notes: PathBuf,
    /// Relative noise to reach
    #[arg(long, value_name = "FRACTION", default_value_t = 0.005)]
    max_noise: f64,
    /// Device time to collect for each row, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 60)]
    min_time: u64,
    /// Longest time to spend on a shape, in seconds
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    timeout: f64,
    /// Begin no further shape after so many seconds; what was measured is written all the same
    #[arg(long, value_name = "S")]
    within: Option<f64>,
    /// Seed of the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: Args, out: &OutputArgs) -> Result<()> {
    let recorded = args.peers.iter().map(|p| peers::read(p)).collect::<Result<Vec<_>>>()?;
    recorded.iter().flat_map(|f| &f.failed).for_each(|line| eprintln!("note: not measured: {line}"));
    if !args.from.is_empty() {
        return beside(&args, &recorded, out);
    }
    let cases = cases(&args)?;
    if !(args.max_noise > 0.0 && args.timeout > 0.0) {
        return Err(Error::usage("--max-noise and --timeout must be above 0"));
    }
    if let (Some(id), false) = (&args.note, args.dry_run) {
        super::note::book::require_sealed(&args.notes, id)?;
    }
    let which = match (args.all_variants, args.variant.is_empty()) {
        (true, _) => Which::All,
        (_, true) => Which::Chosen,
        _ => Which::Named(args.variant.clone()),
    };
    let device = if args.dry_run { Err(Error::no_device("")) } else { Device::open(args.gpu) };
    let (chip, ceilings) = match &device {
        Ok(device) => {
            let info = device.info();
            let ceilings = store::find(&store::file(), &info.uuid, &info.name)?.ok_or_else(|| {
                Error::new(Kind::Usage, format!("nobody has measured the ceilings of {} yet", info.name))
                    .try_next(format!("`workbench roofline --gpu {}`, once", args.gpu))
            })?;
            (info.chip, ceilings)
        }
        Err(_) => (Chip::H200, Ceilings::h200()),
    };
    let say = |line: String| if !out.takes_stdout() { println!("{line}") };
    let predicted = predictions(&cases, &which, &chip, &ceilings, &say)?;
    if args.dry_run {
        return write_forecasts(&predicted, &ceilings, args.note.as_deref(), out);
    }
    let device = device?;

    let mut gpu = Gpu::on(&device, false)?;
    let mut bench = Bench::new(&device, gpu.modules())?;
    let environment = Environment::begin(&device, bench.clocks());
    let plan = Plan {
        which,
        options: Options {
            max_noise: args.max_noise,
            min_time: Duration::from_millis(args.min_time),
            timeout: Duration::from_secs_f64(args.timeout),
            ..Options::new(args.mode)
        },
        check: !args.no_check,
        library: !args.no_library,
        seed: args.seed,
    };
    say(format!("\nmeasured, {} ({})", args.mode.name(), gpu_line(&device)));
    say(rows::header());
    let mut all: Vec<Row> = Vec::new();
    let mut refused: Vec<Refusal> = Vec::new();
    let mut left_out: Option<String> = None;
    let mut peer_rows: Vec<Value> = Vec::new();
    let mut failure = None;
    let begun = Instant::now();
    for (i, (op, shape)) in cases.iter().enumerate() {
        if args.within.is_some_and(|s| begun.elapsed().as_secs_f64() > s) {
            eprintln!("note: {} shapes left out: the time of --within is over", cases.len() - i);
            break;
        }
        let op = *op;
        let measured = sweep::shape(&mut gpu, &mut bench, op, shape, &ceilings, &plan, &mut |line| {
            eprintln!("note: {line}");
        });
        match measured {
            Ok(measured) => {
                for refusal in measured.refused {
                    // Of all variants many refuse any one shape: no news, and no row.
                    match plan.which {
                        Which::All => eprintln!("note: {refusal}"),
                        _ => say(rows::refused_line(&refusal)),
                    }
                    refused.push(refusal);
                }
                for row in measured.rows {
                    say(rows::line(&row));
                    row.timing.warnings.iter().for_each(|w| eprintln!("  {}/{}: {w}", row.op, row.variant));
                    row.checks.iter().filter(|c| !c.ok()).for_each(|c| eprintln!("  WRONG: {}", rows::wrong(c)));
                    all.push(row);
                }
            }
            // A failed shape must not cost the shapes already measured.
            Err(e) if e.kind == Kind::Usage => {
                let why = format!("{shape} left out: {e}");
                eprintln!("note: {why}");
                left_out.get_or_insert(why);
            }
            Err(e) => {
                failure = Some(e);
                break;
            }
        }
        for peer in peers::matching(recorded.iter().flat_map(|f| &f.rows), op.name(), shape).into_iter().filter(|r| r.peer) {
            let floor = ceilings.floor(&op.cost(shape)?);
            say(rows::peer_line(peer, shape, &floor));
            peer_rows.push(rows::peer_json(peer, shape, &floor));
        }
    }
    let environment = environment.finish(bench.clocks());
    say(format!("\n{}", environment.lines()));
    let head = json!({"schema": 1, "provenance": "measured", "environment": environment, "ceilings": ceilings, "note": args.note});
    let refusals = refused.iter().filter(|_| plan.which != Which::All).map(rows::refused_json);
    let lines: Vec<Value> =
        std::iter::once(head).chain(all.iter().map(rows::json)).chain(refusals).chain(peer_rows).collect();
    let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
    if !recorded.is_empty() && !all.is_empty() {
        let ours = peers::parse("this run", &text)?;
        let contests = versus::contests(&ours.rows, &recorded, None)?;
        let (sheet, tail) = table(&contests);
        say(format!("\n{}\n{tail}", sheet.terminal()));
        warn(&doubts(&[ours], &recorded));
    }
    if let Some(file) = &out.json {
        write_output(file, &text)?;
    }
    if let Some(file) = &out.csv {
        write_output(file, &rows::csv(&all)?)?;
    }
    if let Some(file) = &out.md {
        write_output(file, &rows::markdown(&all, &environment))?;
    }
    if let Some(e) = failure {
        return Err(e);
    }
    if all.is_empty() {
        let why = refused.first().map(Refusal::to_string).or(left_out);
        return Err(nothing(&why.unwrap_or_else(|| "there was no shape".into())));
    }
    let wrong = all.iter().filter(|r| !r.ok()).count();
    if wrong > 0 {
        return Err(Error::check(format!("{wrong} of {} rows computed something wrong", all.len()))
            .try_next("workbench verify"));
    }
    match all.iter().filter(|r| !r.timing.trusted()).count() {
        0 => Ok(()),
        n => Err(Error::untrusted(format!("{n} of {} rows cannot be trusted (see the warnings above)", all.len()))),
    }
}

fn gpu_line(device: &Device) -> String {
    format!("{} …{}", device.info().name, device.info().uuid_tail())
}

/// Nothing at all was measured (or predicted): with no row there is no success.
fn nothing(why: &str) -> Error {
    Error::usage(format!("no row at all: {why}")).try_next("`workbench list OP` shows the variants")
}

/// Recorded rows of ours beside the peers'.
fn beside(args: &Args, theirs: &[File], out: &OutputArgs) -> Result<()> {
    let ours = args.from.iter().map(|p| peers::read(p)).collect::<Result<Vec<_>>>()?;
    let rows: Vec<_> = ours.iter().flat_map(|f| f.rows.clone()).collect();
    if let Some(op) = &args.op {
        super::op(op)?;
    }
    let contests = versus::contests(&rows, theirs, args.op.as_deref())?;
    if contests.is_empty() {
        return Err(Error::usage("no shape of ours is one of theirs").try_next(
            "the same shapes on both sides: `workbench bench OP --shape …`, `python3 peers/OP.py --shapes …`",
        ));
    }
    let doubts = doubts(&ours, theirs);
    warn(&doubts);
    let (sheet, tail) = table(&contests);
    let json = json!({"schema": 1, "provenance": "recorded", "doubts": doubts, "contests": contests});
    emit(out, &[sheet], &tail, &json)
}

/// Every pair of files that is compared, once each.
fn doubts(ours: &[File], theirs: &[File]) -> Vec<String> {
    let mut all: Vec<String> =
        ours.iter().flat_map(|a| theirs.iter().flat_map(|b| versus::doubts(&a.card, &b.card))).collect();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|line| seen.insert(line.clone()));
    all
}

fn warn(doubts: &[String]) {
    doubts.iter().for_each(|line| eprintln!("warning: not the same conditions: {line}"));
}

/// One row for each shape's best peer, then the others'.
fn table(contests: &[Contest]) -> (Sheet, String) {
    let heads = ["op", "shape", "ours", ">µs", "peer", ">µs", ">ours / theirs", "fastest"];
    let mut sheet = Sheet::new("Ours beside theirs", &heads);
    let time = |ns: f64| format!("{:.2}", ns / 1e3);
    for c in contests {
        for (i, peer) in c.peers.iter().enumerate() {
            let first = |text: String| if i == 0 { text } else { String::new() };
            sheet.row([
                first(c.op.clone()),
                first(short(&c.shape, 60)),
                first(c.ours.name.clone()),
                first(time(c.ours.ns)),
                peer.name.clone(),
                time(peer.ns),
                if peer.wrong { "wrong result".into() } else { format!("{:.3}", c.ours.ns / peer.ns) },
                first(c.best.clone()),
            ]);
        }
    }
    let ratios: Vec<f64> = contests.iter().filter_map(|c| c.ratio).collect();
    let won = contests.iter().filter(|c| c.best == "ours").count();
    let mut tail = format!("ours is the fastest of {won} of {} shapes ({})", contests.len(), percent(won as f64 / contests.len().max(1) as f64));
    if let Some(worst) = ratios.iter().copied().reduce(f64::max) {
        let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
        tail += &format!("; ours over the best peer: {mean:.3} in the geometric mean, {worst:.3} at worst");
    }
    (sheet, tail + "\n")
}

/// What is to be timed, in order.
fn cases(args: &Args) -> Result<Vec<Case>> {
    if let Some(list) = &args.sweep {
        return grid::find(list);
    }
    let op = super::op(args.op.as_deref().unwrap_or_default())?;
    match args.shape.as_slice() {
        [] => Ok(op.bench_shapes().into_iter().map(|shape| (op, shape)).collect()),
        texts => texts.iter().map(|t| Ok((op, Shape::parse(t)?))).collect(),
    }
}

/// What one variant should cost, in a row of a table.
struct Forecast {
    op: &'static str,
    variant: String,
    shape: Shape,
    predicted: sweep::Predicted,
}

impl Forecast {
    fn json(&self) -> Value {
        let p = &self.predicted;
        let ns = |v: f64| v.round() as i64;
        json!({
            "op": self.op, "variant": self.variant, "shape": self.shape.to_string(), "bytes": p.cost.bytes(),
            "flops": p.cost.flops, "floor_ns": ns(p.floor.ns), "predicted_ns": ns(p.ns), "predicted_low_ns": ns(p.low),
            "predicted_high_ns": ns(p.high), "bound": rows::bound(&p.floor), "launches": p.launches,
        })
    }
}

/// Prints what each variant should cost.
///
/// # Errors
/// A name that is none; no variant that can compute any of the shapes, with the first one's reason.
fn predictions(
    cases: &[Case],
    which: &Which,
    chip: &Chip,
    ceilings: &Ceilings,
    say: &dyn Fn(String),
) -> Result<Vec<Forecast>> {
    let (mut all, mut why) = (Vec::new(), None);
    // Nothing is printed before everything is understood: half a table above an error is no result.
    let mut lines = Vec::new();
    let mut add = |line: String| lines.push(line);
    add(from(ceilings));
    add(format!("{:<28} {:<46} {:>10} {:>10} {:>10} {:>10}  bound", "kernel", "shape", "bytes", "GFLOP", "floor µs", "predicted"));
    for (op, shape) in cases {
        let op = *op;
        let (variants, refused) = which.variants(op, shape, chip)?;
        if *which != Which::All {
            refused.iter().for_each(|refusal| add(rows::refused_line(refusal)));
        }
        why = why.or(refused.first().map(Refusal::to_string));
        for (variant, shape) in variants {
            let p = sweep::predict(op, variant, &shape, chip, ceilings)?;
            add(format!(
                "{:<28} {:<46} {:>10} {:>10.3} {:>10.2} {:>10.2}  {}",
                format!("{}/{variant}", op.name()),
                shape,
                Bytes(p.cost.bytes()),
                p.cost.flops as f64 / 1e9,
                p.floor.ns / 1e3,
                p.ns / 1e3,
                rows::bound(&p.floor),
            ));
            all.push(Forecast { op: op.name(), variant: variant.to_string(), shape, predicted: p });
        }
    }
    if all.is_empty() {
        return Err(nothing(&why.unwrap_or_else(|| "there was no shape".into())));
    }
    lines.into_iter().for_each(say);
    Ok(all)
}

fn from(ceilings: &Ceilings) -> String {
    format!("predicted from the {} ceilings of {} ({})", ceilings.provenance, ceilings.gpu, ceilings.source)
}

/// The files of `--dry-run`: a head and a line for each row, as the measured run writes them, without times.
fn write_forecasts(all: &[Forecast], ceilings: &Ceilings, note: Option<&str>, out: &OutputArgs) -> Result<()> {
    if let Some(file) = &out.json {
        let head = json!({"schema": 1, "provenance": "derived", "ceilings": ceilings, "note": note});
        let lines = std::iter::once(head).chain(all.iter().map(Forecast::json));
        write_output(file, &lines.map(|l| format!("{l}\n")).collect::<String>())?;
    }
    let mut sheet = Sheet::new(from(ceilings), &["kernel", "shape", ">bytes", ">flops", ">floor ns", ">predicted ns", "bound"]);
    for f in all {
        let v = f.json();
        let cell = |key: &str| v[key].to_string();
        sheet.row([
            format!("{}/{}", f.op, f.variant),
            f.shape.to_string(),
            cell("bytes"),
            cell("flops"),
            cell("floor_ns"),
            cell("predicted_ns"),
            rows::bound(&f.predicted.floor).into(),
        ]);
    }
    if let Some(file) = &out.csv {
        write_output(file, &sheet.csv()?)?;
    }
    if let Some(file) = &out.md {
        write_output(file, &sheet.markdown())?;
    }
    Ok(())
}
