//! What stands against a capture, by name and with what to do.

use crate::error::{Error, Result};
use crate::profile::native::{Process, Recording};

/// Findings about the capture itself: what, and what to try.
pub fn all(recording: &Recording) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for p in &recording.processes {
        let said = of(p).into_iter().map(|(what, fix)| (format!("process {}: {what}", p.pid), fix));
        found.extend(said);
    }
    found
}

fn of(p: &Process) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut say = |what: String, fix: &str| found.push((what, fix.to_string()));
    if let Some((_, sentence)) = &p.problem {
        say(sentence.clone(), p.fact("problem_fix").unwrap_or("`workbench doctor`"));
        return found;
    }
    if p.operations == 0 && p.calls > 0 {
        say(
            "CUDA calls but no operation of the device were recorded".into(),
            "if it did launch work: WSL, MIG and missing permission look like this; see `workbench doctor`",
        );
    } else if p.operations == 0 {
        say("no GPU work".into(), "nothing, if it only asked for the devices; else lengthen --for or drop --after");
    }
    if p.dropped > 0 {
        say(
            format!("CUPTI dropped {} records{}: gaps there are not real", p.dropped, dropped_when(p)),
            "--mode kernels or --mode graph, or a shorter --for",
        );
    }
    if let (Some(cupti), Some(driver)) = (p.fact("cupti"), p.fact("cuda_driver"))
        && release(cupti) < release(driver)
    {
        say(
            format!("CUPTI {cupti} is older than the driver's CUDA {driver}: new kinds of work may be missing"),
            "WORKBENCH_CUPTI=/path/to/a/newer/libcupti.so",
        );
    }
    if !p.ended {
        say(
            "it ended without running exit handlers; up to one flush period is missing".into(),
            "a shorter --flush-every",
        );
    }
    found
}

/// The window in which records were dropped, from the first record of the process.
fn dropped_when(p: &Process) -> String {
    let since = |t: i64| t.saturating_sub(p.span.map_or(t, |s| s.0)).max(0) as f64 / 1e6;
    match p.dropped_between {
        Some((a, b)) if a < b => format!(" between {:.1} and {:.1} ms after its first", since(a), since(b)),
        Some((_, b)) => format!(" up to {:.1} ms after its first", since(b)),
        None => String::new(),
    }
}

/// What keeps the account from being one, as the error with the right exit code.
pub fn verdict(recording: &Recording) -> Result<()> {
    if recording.processes.is_empty() {
        return Err(Error::no_device("the command never initialised CUDA, so there is nothing to account").try_next(
            "check that it uses the GPU (sudo and some launchers drop CUDA_INJECTION64_PATH), and `workbench doctor`",
        ));
    }
    let first = recording.processes.first().and_then(|p| Some((p, p.problem.as_ref()?)));
    match first {
        Some((p, (name, sentence))) if recording.processes.iter().all(|p| p.problem.is_some()) => {
            let error = match name.as_str() {
                "another_subscriber" | "hardware_busy" => Error::untrusted(sentence.clone()),
                _ => Error::no_device(sentence.clone()),
            };
            Err(error.try_next(p.fact("problem_fix").unwrap_or("`workbench doctor`")))
        }
        _ => Ok(()),
    }
}

/// `13.0 (130001)` as (13, 0).
fn release(text: &str) -> (u32, u32) {
    let mut parts = text.split([' ', '.']).map(|n| n.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare() {
        assert!(release("12.9 (28)") < release("13.0"));
        assert!(release("13.0 (130001)") >= release("13.0"));
    }

    #[test]
    fn each_finding_has_its_words() {
        let whole = Process { operations: 5, calls: 9, ended: true, ..Process::default() };
        assert!(of(&whole).is_empty());
        let text = |p: Process| of(&p).into_iter().map(|f| f.0).collect::<Vec<_>>().join("; ");
        assert!(text(Process { operations: 0, ..whole.clone() }).contains("no operation of the device"));
        assert!(text(Process { operations: 0, calls: 0, ..whole.clone() }).contains("no GPU work"));
        let lossy = Process {
            dropped: 7,
            dropped_between: Some((3_000_000, 5_500_000)),
            span: Some((1_000_000, 9_000_000)),
            ..whole.clone()
        };
        assert!(text(lossy).contains("dropped 7 records between 2.0 and 4.5 ms after its first: gaps"));
        assert!(text(Process { ended: false, ..whole.clone() }).contains("exit handlers"));
        let facts = vec![("cupti".to_string(), "12.9 (28)".to_string()), ("cuda_driver".into(), "13.0".into())];
        assert!(text(Process { facts, ..whole }).contains("older than the driver"));
    }
}
