//! Made-up captures of any size, for benchmarks and tests: an LLM decode loop whose numbers are known by construction.

use super::trace::{Call, CallKind, DeviceInfo, Operation, Trace};
use crate::op::Rng;
use std::io::{self, Write};

/// Kernels of one layer: name, duration and the gap after it, ns.
const LAYER: [(&str, i64, i64); 5] = [
    (
        "void rmsnorm_kernel<__nv_bfloat16, 8>(__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, int, float)",
        2_100,
        800,
    ),
    (
        "void gemv_rows<__nv_bfloat16, 4, 256>(__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, int, int)",
        9_400,
        700,
    ),
    ("void paged_attention_split<__nv_bfloat16, 128, 16>(AttentionArguments)", 6_200, 900),
    ("void paged_attention_combine<__nv_bfloat16, 128>(AttentionArguments)", 1_900, 700),
    (
        "void gemv_rows<__nv_bfloat16, 8, 256>(__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, int, int)",
        24_300,
        800,
    ),
];

/// One launch and its kernel, as both forms of a capture tell it.
struct Event {
    name: &'static str,
    launch: (i64, i64),
    run: (i64, i64),
    correlation: u64,
    step: u64,
}

/// Calls `each` for every kernel of a decode loop of `steps` steps of `layers` layers, in order.
fn decode(steps: u64, layers: u64, seed: u64, mut each: impl FnMut(&Event) -> io::Result<()>) -> io::Result<()> {
    let mut rng = Rng(seed);
    let (mut host, mut device, mut correlation) = (1_000_000i64, 1_010_000i64, 0u64);
    for step in 0..steps {
        for k in 0..layers * LAYER.len() as u64 {
            let (name, duration, gap) = LAYER[(k % LAYER.len() as u64) as usize];
            correlation += 1;
            let launch = (host, host + 2_000 + rng.range(0, 900) as i64);
            let start = (device + gap).max(launch.0 + 4_500);
            let run = (start, start + duration + rng.range(0, 300) as i64);
            host = launch.1 + 700;
            device = run.1;
            each(&Event { name, launch, run, correlation, step })?;
        }
        // The host waits for the step and samples a token.
        host = host.max(device) + 20_000;
    }
    Ok(())
}

/// A capture in memory with `steps * layers * 5` kernels.
pub fn trace(steps: u64, layers: u64, seed: u64) -> Trace {
    let mut t = Trace { format: "synthetic".into(), resolution_ns: 1, ..Trace::default() };
    t.devices.push(DeviceInfo { id: 0, name: "synthetic".into(), sm: 90, sms: 132 });
    let call = t.names.intern("cudaLaunchKernel");
    let made = decode(steps, layers, seed, |e| {
        let name = t.names.intern(e.name);
        t.operations.push(Operation {
            name,
            stream: 7,
            start: e.run.0,
            end: e.run.1,
            correlation: e.correlation,
            grid: [132, 1, 1],
            block: [256, 1, 1],
            ..Operation::default()
        });
        t.calls.push(Call {
            kind: CallKind::Launch,
            name: call,
            process: 0,
            thread: 1,
            start: e.launch.0,
            end: e.launch.1,
            correlation: e.correlation,
            driver: false,
        });
        Ok(())
    });
    debug_assert!(made.is_ok());
    t
}

/// The same capture as Kineto JSON, with the operators, flows and Python frames that PyTorch writes around it.
pub fn kineto(steps: u64, layers: u64, seed: u64, out: &mut dyn Write) -> io::Result<()> {
    let us = |ns: i64| format!("{}.{:03}", ns / 1_000, ns % 1_000);
    write!(
        out,
        "{{\"schemaVersion\": 1, \"deviceProperties\": [{{\"id\": 0, \"name\": \"synthetic\", \"computeMajor\": 9, \
         \"computeMinor\": 0, \"numSms\": 132}}], \"baseTimeNanoseconds\": 1700000000000000000,\n\"traceEvents\": [\n"
    )?;
    let mut step = u64::MAX;
    let mut comma = "";
    decode(steps, layers, seed, |e| {
        let (name, id) = (e.name, e.correlation);
        let (ls, ld) = (us(e.launch.0), us(e.launch.1 - e.launch.0));
        let (rs, rd) = (us(e.run.0), us(e.run.1 - e.run.0));
        if e.step != step {
            step = e.step;
            write!(
                out,
                "{comma}  {{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#{step}\", \"pid\": 4242, \
                 \"tid\": 4242, \"ts\": {ls}, \"dur\": 1.000, \"args\": {{\"External id\": {id}, \"Ev Idx\": {id}}}}}"
            )?;
            comma = ",\n";
        }
        write!(
            out,
            ",\n  {{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"model.py(120): forward\", \"pid\": 4242, \"tid\": 4242, \
             \"ts\": {ls}, \"dur\": {ld}, \"args\": {{\"Python parent id\": 1, \"Python id\": {id}, \"Ev Idx\": {id}}}}},\n  \
             {{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 4242, \"tid\": 4242, \"ts\": {ls}, \"dur\": {ld}, \
             \"args\": {{\"External id\": {id}, \"Record function id\": 0, \"Concrete Inputs\": [\"\", \"\"], \
             \"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\"], \"Input Strides\": [[4096, 1], [1, 4096]], \
             \"Input Dims\": [[1, 4096], [4096, 4096]], \"Ev Idx\": {id}}}}},\n  \
             {{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 4242, \"tid\": 4242, \
             \"ts\": {ls}, \"dur\": {ld}, \"args\": {{\"External id\": {id}, \"cbid\": 211, \"correlation\": {id}}}}},\n  \
             {{\"ph\": \"s\", \"id\": {id}, \"pid\": 4242, \"tid\": 4242, \"ts\": {ls}, \"cat\": \"ac2g\", \"name\": \"ac2g\"}},\n  \
             {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{name}\", \"pid\": 0, \"tid\": 7, \"ts\": {rs}, \"dur\": {rd}, \
             \"args\": {{\"External id\": {id}, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": {id}, \
             \"registers per thread\": 64, \"shared memory\": 0, \"blocks per SM\": 1.000000, \"warps per SM\": 8.000000, \
             \"grid\": [132, 1, 1], \"block\": [256, 1, 1], \"est. achieved occupancy %\": 12}}}},\n  \
             {{\"ph\": \"f\", \"id\": {id}, \"pid\": 0, \"tid\": 7, \"ts\": {rs}, \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"}}"
        )
    })?;
    write!(out, "\n], \"traceName\": \"synthetic.json\"}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::import::kineto as importer;
    use crate::profile::ledger::{Options, account};
    use std::io::Cursor;

    #[test]
    fn both_forms_are_one_capture() {
        let t = trace(3, 4, 1);
        let mut text = Vec::new();
        kineto(3, 4, 1, &mut text).unwrap();
        let read = importer::read(Box::new(Cursor::new(text))).unwrap();
        assert_eq!(t.operations.len(), 60);
        assert!(read.defects.is_empty(), "{:?}", read.defects);
        let times = |t: &Trace| t.operations.iter().map(|o| (o.start, o.end, o.correlation)).collect::<Vec<_>>();
        assert_eq!(times(&t), times(&read));
        let end = t.operations[59].end;
        let o = Options::default();
        let (a, b) = (account(&t, 0, 0, end, &o).unwrap(), account(&read, 0, 0, end, &o).unwrap());
        assert_eq!(a.lines.len(), b.lines.len());
        assert!(a.lines.iter().zip(&b.lines).all(|(x, y)| (&x.name, x.ns, x.count) == (&y.name, y.ns, y.count)));
    }
}
